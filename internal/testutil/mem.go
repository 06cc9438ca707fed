package testutil

import (
	"testing"

	"github.com/seed33544411/rma/internal/offheap"
)

// Scratch returns n zeroed bytes outside the Go heap, freed when the test ends.
func Scratch(tb testing.TB, n int) []byte {
	tb.Helper()
	b, err := offheap.Alloc(n, offheap.Scratch)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := offheap.Free(b, offheap.Scratch); err != nil {
			tb.Error(err)
		}
	})
	return b
}

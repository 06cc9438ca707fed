package testutil

import (
	"fmt"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"

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

// canarySeed is the payload seed of the canaries; tests use other seeds.
const canarySeed = 0xca9a51

// Guarded is a buffer inside larger memory whose every other byte is a canary.
type Guarded struct {
	Mem []byte // all of it
	Buf []byte // the part in use
	off int
}

// Guard makes mem[off:off+n] the buffer and fills the rest of mem with canaries. It leaves
// the buffer unchanged.
func Guard(mem []byte, off, n int) *Guarded {
	g := &Guarded{Mem: mem, Buf: mem[off : off+n : off+n], off: off}
	Fill(mem[:off], canarySeed, 0)
	Fill(mem[off+n:], canarySeed, uint64(off+n))
	return g
}

// Check returns an error if a canary has changed.
func (g *Guarded) Check() error {
	if err := Verify(g.Mem[:g.off], canarySeed, 0); err != nil {
		return fmt.Errorf("memory before the buffer was written: %w", err)
	}
	end := g.off + len(g.Buf)
	if err := Verify(g.Mem[end:], canarySeed, uint64(end)); err != nil {
		return fmt.Errorf("memory behind the buffer was written: %w", err)
	}
	return nil
}

// Size asserts that a type takes want bytes on 64-bit systems, and at most want bytes on
// 32-bit systems.
func Size(t testing.TB, want, got uintptr) {
	t.Helper()
	if bits.UintSize == 64 {
		require.Equal(t, want, got)
	}
	require.LessOrEqual(t, got, want)
}

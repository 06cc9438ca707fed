package testutil

import (
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"
)

// Size asserts that a type takes want bytes where words have 64 bits, and not
// more where they have 32.
func Size(t testing.TB, want, got uintptr) {
	t.Helper()
	if bits.UintSize == 64 {
		require.Equal(t, want, got)
	}
	require.LessOrEqual(t, got, want)
}

package onesided

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConditions(t *testing.T) {
	for c, want := range map[Cond][3]bool{
		EQ: {false, true, false}, NE: {true, false, true}, GE: {false, true, true},
		GT: {false, false, true}, LE: {true, true, false}, LT: {true, false, false},
	} {
		require.True(t, c.Known())
		for i, v := range []uint64{4, 5, 1 << 63} {
			require.Equal(t, want[i], c.Holds(v, 5), "%d %d", c, v)
		}
	}
	require.False(t, (LT + 1).Known())
}

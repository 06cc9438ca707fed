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

// Signed words are compared as signed numbers, others as unsigned ones.
func TestMeets(t *testing.T) {
	bits := func(v int64) uint64 { return uint64(v) }
	for _, c := range []struct {
		t     Type
		word  uint64
		cond  Cond
		value uint64
		want  bool
	}{
		{Int64, bits(-1), LT, 0, true}, {Uint64, bits(-1), LT, 0, false},
		{Int32, uint64(uint32(1<<32 - 1)), LT, 0, true}, {Uint32, uint64(uint32(1<<32 - 1)), GT, 5, true},
		{Int32, 5, GE, 1<<32 - 7, true}, {Int32, 1 << 31, LE, 1<<31 - 1, true},
		{Int64, 1 << 63, LT, 1<<63 - 1, true}, {Int64, 7, EQ, 7, true}, {Int32, 7, NE, 7, false},
	} {
		require.Equal(t, c.want, c.t.Meets(c.word, c.cond, c.value), "%+v", c)
	}
}

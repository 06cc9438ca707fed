package onesided

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// On the word as bytes in memory, each function does to the half at its address
// what it does to a number, and nothing to the other half.
func TestRMWAgainstMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	plain := func(f Func, v, arg, cmp uint64) uint64 {
		switch f {
		case Add:
			return v + arg
		case Set:
			return arg
		case And:
			return v & arg
		case Or:
			return v | arg
		case Xor:
			return v ^ arg
		}
		if v == cmp {
			return arg
		}
		return v
	}
	refused := 0
	for range 5000 {
		var mem, want [8]byte
		binary.NativeEndian.PutUint64(mem[:], rng.Uint64())
		m := RMW{Func: Func(rng.IntN(int(SetIf) + 1)), Arg: rng.Uint64(), Compare: rng.Uint64(), Half: rng.IntN(2) == 0}
		addr := uint64(4 * rng.IntN(2) * rng.IntN(2))
		if !m.Half {
			addr = 0
		} else {
			m.Shift = Shift(addr)
			m.Arg, m.Compare = uint64(uint32(m.Arg)), uint64(uint32(m.Compare))
		}
		old := binary.NativeEndian.Uint64(mem[:])
		want = mem
		if m.Half {
			v := uint64(binary.NativeEndian.Uint32(mem[addr:]))
			if rng.IntN(2) == 0 {
				m.Compare = v
			}
			binary.NativeEndian.PutUint32(want[addr:], uint32(plain(m.Func, v, m.Arg, m.Compare)))
			require.EqualValues(t, uint32(v), m.Value(old))
		} else {
			if rng.IntN(2) == 0 {
				m.Compare = old
			}
			binary.NativeEndian.PutUint64(want[:], plain(m.Func, old, m.Arg, m.Compare))
			require.Equal(t, old, m.Value(old))
		}
		now, ok := m.Apply(old)
		if !ok {
			refused++
			require.Equal(t, SetIf, m.Func)
			require.Equal(t, old, now)
		}
		require.Equal(t, binary.NativeEndian.Uint64(want[:]), now, "%+v at %d", m, addr)
	}
	require.Positive(t, refused)
}

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

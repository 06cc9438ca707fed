package gather

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// A run is another way to make and to read what AppendHeader and Next do.
func TestRun(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(9, 4))
	for range 300 {
		base := rng.Uint64() >> rng.IntN(64)
		if base > math.MaxUint64-1000 {
			continue
		}
		es := make([]Entry, 1+rng.IntN(200))
		or := uint32(0)
		most := []int{1, 8, 255, 256, 3000, 70000}[rng.IntN(6)]
		for i := range es {
			es[i] = Entry{At: base + uint64(i), Size: uint32(rng.IntN(most + 1))}
			or |= es[i].Size
		}
		want, err := appendHeader(nil, Seq, es)
		require.NoError(t, err)
		width := RunWidth(or)
		require.Equal(t, len(want), RunLen(len(es), width))
		got, sizes := AppendRun([]byte("xyz"), base, len(es), width)
		require.Len(t, sizes, len(es)*width)
		for i, e := range es {
			var b [4]byte
			binary.LittleEndian.PutUint32(b[:], e.Size)
			copy(sizes[i*width:], b[:width])
		}
		require.Equal(t, want, got[3:])

		p := gathered(t, Seq, es)
		var s Splitter
		require.NoError(t, s.Open(Seq, nil, p))
		b, sizes, w, body, ok := s.Run()
		require.Equal(t, base <= 1<<63, ok)
		if !ok {
			continue
		}
		require.Equal(t, base, b)
		require.Equal(t, width, w)
		require.Len(t, sizes, len(es)*width)
		at := 0
		for i, e := range es {
			n := Size(sizes, w, i)
			require.Equal(t, int(e.Size), n)
			require.NoError(t, testutil.Verify(body[at:at+n], uint64(i), 0))
			at += n
		}
		require.Len(t, body, at)
	}
}

// What is no run, or not at its beginning, or in parts, is taken segment by segment.
func TestNoRun(t *testing.T) {
	t.Parallel()
	run := gathered(t, Seq, []Entry{{At: 5, Size: 3}, {At: 6, Size: 9}})
	var s Splitter
	is := func() bool {
		_, _, _, _, ok := s.Run()
		return ok
	}
	alive := uint64(1)
	require.NoError(t, s.Open(Seq, &alive, run))
	require.True(t, is())
	alive++
	require.False(t, is(), "the lease has ended")
	require.NoError(t, s.Open(Seq, nil, run))
	require.True(t, s.Next())
	require.False(t, is(), "the first is taken")
	require.NoError(t, s.Open(Seq, nil, run[:8], run[8:]))
	require.False(t, is(), "in two parts")
	require.NoError(t, s.Open(Seq, nil, gathered(t, Seq, []Entry{{At: 5, Size: 3}, {At: 7, Size: 9}})))
	require.False(t, is(), "a gap")
	require.NoError(t, s.Open(Dest, nil, gathered(t, Dest, []Entry{{At: 5, Size: 3}, {At: 8, Size: 9}})))
	require.False(t, is(), "destinations")
	require.Error(t, s.Open(Seq, nil, run[:len(run)-1]))
	require.False(t, is(), "refused")
}

func TestSumBytes(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(2, 2))
	for n := range 3000 {
		b, want := make([]byte, n), uint64(0)
		for i := range b {
			if b[i] = 255; n%2 == 0 {
				b[i] = byte(rng.Uint32())
			}
			want += uint64(b[i])
		}
		require.Equal(t, want, sumBytes(b), "%d bytes", n)
	}
}

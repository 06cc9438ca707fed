package gather

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// A run is written as a list of its entries would be, and read segment by segment or many
// in one go.
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
		require.Equal(t, len(want), RunLen(len(es), or))
		got, sizes := AppendRun([]byte("xyz"), base, len(es), or)
		for i, e := range es {
			sizes.Put(i, int(e.Size))
		}
		require.Equal(t, want, got[3:])

		p := gathered(t, Seq, es)
		var s Splitter
		require.NoError(t, s.Open(nil, p))
		seen := 0
		for more := s.Next(); more; {
			left, body, ok := s.Ahead()
			require.Equal(t, base <= 1<<63, ok)
			n, bytes := 1, int(es[seen].Size)
			if ok {
				require.Equal(t, len(es)-seen, left.Len())
				n, bytes = 1+rng.IntN(left.Len()), 0
				ones, small := left.Ones(0)
				require.Equal(t, or < 256, small)
				for i := range n {
					size := left.At(i)
					require.Equal(t, int(es[seen+i].Size), size)
					require.True(t, !small || int(ones[i]) == size)
					require.NoError(t, testutil.Verify(body[bytes:bytes+size], uint64(seen+i), 0))
					bytes += size
				}
			}
			require.Equal(t, es[seen], s.Entry())
			b, whole := s.Bytes()
			require.True(t, whole)
			require.NoError(t, testutil.Verify(b, uint64(seen), 0))
			require.Len(t, b, int(es[seen].Size))
			seen += n
			if ok {
				more = s.Skip(n, bytes)
			} else {
				more = s.Next()
			}
		}
		require.Equal(t, len(es), seen)
		require.NoError(t, s.Err())
		_, _, ok := s.Ahead()
		require.False(t, ok, "there is nothing left")
		require.False(t, s.Next())
	}
}

// Only segments of a run that lies in one part are taken in one go.
func TestAhead(t *testing.T) {
	t.Parallel()
	run := gathered(t, Seq, []Entry{{At: 5, Size: 3}, {At: 6, Size: 9}})
	var s Splitter
	ahead := func(alive *uint64, payload ...[]byte) bool {
		require.NoError(t, s.Open(alive, payload...))
		require.True(t, s.Next())
		_, _, ok := s.Ahead()
		return ok
	}
	alive := uint64(1)
	require.True(t, ahead(&alive, run))
	alive++
	_, _, ok := s.Ahead()
	require.False(t, ok, "the lease has ended")
	require.ErrorIs(t, s.Err(), ErrReleased)
	require.NoError(t, s.Open(nil, run))
	_, _, ok = s.Ahead()
	require.False(t, ok, "there is no current segment yet")
	require.False(t, ahead(nil, run[:8], run[8:]), "in two parts")
	require.False(t, ahead(nil, gathered(t, Seq, []Entry{{At: 5, Size: 3}, {At: 7, Size: 9}})), "a gap")
	require.Error(t, s.Open(nil, run[:len(run)-1]))
	_, _, ok = s.Ahead()
	require.False(t, ok, "refused")
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

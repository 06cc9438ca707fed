package gather

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// gathered is a payload of kind k with es in it, segment i filled with seed i.
func gathered(t testing.TB, k Kind, es []Entry) []byte {
	b, err := appendHeader(nil, k, es)
	require.NoError(t, err)
	for i, e := range es {
		b = append(b, testutil.Payload(int(e.Size), uint64(i), 0)...)
	}
	return b
}

// Wherever the parts are cut, the segments are the same.
func TestSplitParts(t *testing.T) {
	t.Parallel()
	es := []Entry{{At: 3, Size: 10}, {At: 4}, {At: 6, Size: 1}, {At: 7, Size: 30}, {At: 8}}
	p := gathered(t, Seq, es)
	var s Splitter
	for i := 0; i <= len(p); i++ {
		for j := i; j <= len(p); j++ {
			require.NoError(t, s.Open(Seq, nil, p[:i], p[i:j], p[j:]))
			require.Equal(t, len(es), s.h.Count())
			at := s.h.Len()
			for k := range es {
				require.True(t, s.Next())
				require.Equal(t, k, s.index)
				require.Equal(t, es[k], s.Entry())
				n := int(es[k].Size)
				end := at + n
				b, whole := s.Bytes()
				require.Equal(t, n == 0 || (end <= i || at >= i) && (end <= j || at >= j), whole, "%d %d: segment %d at %d", i, j, k, at)
				if whole {
					require.NoError(t, testutil.Verify(b, uint64(k), 0))
					require.Len(t, b, n)
					require.Equal(t, n, cap(b), "a segment does not reach into the next")
				}
				parts, m := s.Parts()
				var all []byte
				for _, q := range parts[:m] {
					require.NotEmpty(t, q)
					all = append(all, q...)
				}
				require.Len(t, all, n)
				require.NoError(t, testutil.Verify(all, uint64(k), 0))
				dst := make([]byte, n+3)
				require.Equal(t, n, s.Copy(dst))
				require.NoError(t, testutil.Verify(dst[:n], uint64(k), 0))
				require.Equal(t, []byte{0, 0, 0}, dst[n:])
				if n > 4 {
					require.Equal(t, 4, s.Copy(dst[:4]), "no more than the destination holds")
				}
				at = end
			}
			require.False(t, s.Next())
			require.NoError(t, s.Err())
		}
	}
	require.Panics(t, func() { _ = s.Open(Seq, nil, p, nil, nil, nil) })
}

func TestSplitterEndsWithItsLease(t *testing.T) {
	t.Parallel()
	p := gathered(t, Dest, []Entry{{Size: 4}, {At: 8, Size: 4}})
	var s Splitter
	alive := uint64(7)
	require.NoError(t, s.Open(Dest, &alive, p))
	require.True(t, s.Next())
	_, ok := s.Bytes()
	require.True(t, ok)
	alive++
	dst := make([]byte, 16)
	_, ok = s.Bytes()
	require.False(t, ok)
	require.ErrorIs(t, s.Err(), ErrReleased)
	require.Zero(t, s.Copy(dst))
	_, n := s.Parts()
	require.Zero(t, n)
	require.False(t, s.Next())
	require.ErrorIs(t, s.Scatter([][]byte{dst}), ErrReleased)
	require.Equal(t, make([]byte, 16), dst)
	// It is good again for the next message.
	require.NoError(t, s.Open(Dest, &alive, p))
	require.True(t, s.Next())
}

func TestScatter(t *testing.T) {
	t.Parallel()
	var s Splitter
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 4))
		regions := make([][]byte, 3)
		want := make([][]byte, 3)
		for i := range regions {
			regions[i] = make([]byte, rng.IntN(300))
			want[i] = make([]byte, len(regions[i]))
		}
		var es []Entry
		for r := range regions {
			for at := rng.IntN(20); at < len(regions[r]); at += rng.IntN(20) {
				n := rng.IntN(min(40, len(regions[r])-at) + 1)
				testutil.Fill(want[r][at:at+n], uint64(len(es)), 0)
				es = append(es, Entry{At: uint64(at), Size: uint32(n), Region: uint32(r)})
				at += n
			}
		}
		if len(es) == 0 {
			continue
		}
		p := gathered(t, Dest, es)
		i := rng.IntN(len(p) + 1)
		require.NoError(t, s.Open(Dest, nil, p[:i], p[i:]))
		require.NoError(t, s.Scatter(regions))
		require.Equal(t, want, regions)
	}
}

// One bad destination, the last, and nothing at all is written.
func TestScatterRefuses(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]Entry{
		"one byte beyond":     {At: 61, Size: 4, Region: 1},
		"starts beyond":       {At: 65, Size: 0, Region: 1},
		"far beyond":          {At: 1 << 62, Size: 4, Region: 1},
		"sum wraps an int":    {At: 1<<63 - 2, Size: 4, Region: 1},
		"no such region":      {At: 0, Size: 1, Region: 2},
		"region far too high": {At: 0, Size: 1, Region: 1<<32 - 1},
	} {
		dst := make([]byte, 64)
		var s Splitter
		require.NoError(t, s.Open(Dest, nil, gathered(t, Dest, []Entry{{Size: 60, Region: 1}, last})))
		err := s.Scatter([][]byte{nil, dst})
		require.ErrorIs(t, err, ErrDestination, name)
		var de *DestinationError
		require.ErrorAs(t, err, &de)
		require.Equal(t, 1, de.Index)
		require.Equal(t, last, de.Entry)
		require.Equal(t, make([]byte, 64), dst, name)
		require.NoError(t, s.Err(), "the gather itself is good")
		require.True(t, s.Next())
	}
	var s Splitter
	require.NoError(t, s.Open(Seq, nil, gathered(t, Seq, []Entry{{Size: 1}})))
	require.ErrorIs(t, s.Scatter([][]byte{make([]byte, 9)}), ErrHeader)
}

// FuzzSplit gives a receiver any payload: what it hands out lies inside, and
// scatter stays inside the regions.
func FuzzSplit(f *testing.F) {
	f.Add(gathered(f, Dest, []Entry{{At: 2, Size: 9}, {At: 20, Size: 9, Region: 1}}), uint16(20), uint16(30))
	f.Add(gathered(f, Dest, []Entry{{At: 28, Size: 9}}), uint16(3), uint16(17))
	f.Fuzz(func(t *testing.T, p []byte, i, j uint16) {
		a := min(int(i), len(p))
		b := max(a, min(int(j), len(p)))
		var s Splitter
		if s.Open(Dest, nil, p[:a], p[a:b], p[b:]) != nil {
			return
		}
		n := s.h.Len()
		for s.Next() {
			size := int(s.Entry().Size)
			dst := make([]byte, size)
			require.Equal(t, size, s.Copy(dst))
			require.Equal(t, p[n:n+size], dst)
			n += size
		}
		require.Equal(t, len(p), n)
		mem := make([]byte, 96)
		for i := range mem {
			mem[i] = 0xa5
		}
		if err := s.Scatter([][]byte{mem[:32:32], mem[48:64:64]}); err != nil {
			require.ErrorIs(t, err, ErrDestination)
			for _, b := range mem {
				require.Equal(t, byte(0xa5), b, "written in spite of the error")
			}
		}
		for i, b := range mem {
			if i >= 32 && i < 48 || i >= 64 {
				require.Equal(t, byte(0xa5), b, "written outside")
			}
		}
	})
}

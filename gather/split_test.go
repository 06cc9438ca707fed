package gather

import (
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
			require.NoError(t, s.Open(nil, p[:i], p[i:j], p[j:]))
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
	require.Panics(t, func() { _ = s.Open(nil, p, nil, nil, nil) })
}

func TestSplitterEndsWithItsLease(t *testing.T) {
	t.Parallel()
	p := gathered(t, Seq, []Entry{{Size: 4}, {At: 8, Size: 4}})
	var s Splitter
	alive := uint64(7)
	require.NoError(t, s.Open(&alive, p))
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
	require.Equal(t, make([]byte, 16), dst)
	// It is good again for the next message.
	require.NoError(t, s.Open(&alive, p))
	require.True(t, s.Next())
}

// FuzzSplit gives a receiver any payload: what it hands out lies inside.
func FuzzSplit(f *testing.F) {
	f.Add(gathered(f, Seq, []Entry{{At: 2, Size: 9}, {At: 20, Size: 9}}), uint16(20), uint16(30))
	f.Add(gathered(f, Seq, []Entry{{At: 28, Size: 9}}), uint16(3), uint16(17))
	f.Fuzz(func(t *testing.T, p []byte, i, j uint16) {
		a := min(int(i), len(p))
		b := max(a, min(int(j), len(p)))
		var s Splitter
		if s.Open(nil, p[:a], p[a:b], p[b:]) != nil {
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
	})
}

package message

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/eager"
)

// Whatever is removed from wherever, the others stay in order, and the memory of a
// list whose first is taken again and again does not grow.
func TestUnexpectedStaysInOrder(t *testing.T) {
	t.Parallel()
	u := unexpected{limit: 1 << 30, ring: new(eager.Channel)}
	r := rand.New(rand.NewPCG(1, 2))
	var want []uint64
	bytes := 0
	for seq := range uint64(20_000) {
		if seq%3 == 0 {
			u.announce(announced{seq: seq})
		} else {
			require.Len(t, u.add(seq, 7, int(seq%50)), int(seq%50))
			bytes += int(seq%50) + asideOverhead
		}
		want = append(want, seq)
		for len(want) > 0 && r.IntN(100) < 50 {
			i := r.IntN(len(want))
			if r.IntN(2) == 0 {
				i = 0
			}
			at := u.head + i
			require.Equal(t, want[i], u.list[at].seq)
			if want[i]%3 != 0 {
				bytes -= int(want[i]%50) + asideOverhead
			}
			u.remove(at)
			want = slices.Delete(want, i, i+1)
		}
		require.Equal(t, len(want), u.n)
		require.Equal(t, bytes, u.bytes)
		require.Len(t, u.list[u.head:], u.n)
	}
	for i, seq := range want {
		require.Equal(t, seq, u.list[u.head+i].seq)
	}

	u.clear()
	require.Equal(t, unexpected{limit: 1 << 30, ring: u.ring}, u)
	for range 1000 {
		u.announce(announced{})
	}
	room := cap(u.list)
	for range 100_000 {
		u.remove(u.head)
		u.announce(announced{})
	}
	require.LessOrEqual(t, cap(u.list), 4*room, "half of it may be what was removed, before it grows by as much")
	for _, a := range u.list[:u.head] {
		require.Zero(t, a.seq)
		require.Nil(t, a.data)
	}
	require.Equal(t, 1000, u.n)
}

// A receiver that is behind: many are there, and it takes the first.
func BenchmarkUnexpected(b *testing.B) {
	u := unexpected{limit: 1 << 30, ring: new(eager.Channel)}
	for range 50_000 {
		u.announce(announced{})
	}
	b.ReportAllocs()
	for b.Loop() {
		u.remove(u.head)
		u.announce(announced{})
	}
}

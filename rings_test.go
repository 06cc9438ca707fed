package rma

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// With Config.RingMemory a peer with little traffic takes little memory, rings grow with the
// traffic within the bound, and an idle peer gives its own back to a busy one.
func TestRingMemory(t *testing.T) {
	const memory = 160 << 10 // two rings of 64 KiB, of this side or of peers
	for _, kind := range []string{"sim", "simhard"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			es := simulateWith(t, 4, kind, func(c *Config) { c.RingMemory, c.RingLimit = memory, 64<<10 })
			ctx := testutil.Context(t, testutil.Limit)
			burst := func(to, n int) { burst(ctx, t, es, to, n) }
			ring := func(to int) int { return es[0].Peer(to).Stats().Messages.PeerRing }
			for to := 1; to < 4; to++ {
				burst(to, 2)
				s := es[0].Peer(to).Stats().Messages
				require.LessOrEqual(t, s.Memory, 16<<10, "a peer with little traffic")
				require.Equal(t, s.Ring, s.PeerRing)
			}
			require.Equal(t, RingStats{Limit: memory}, es[0].Stats().Rings)
			grow := func(to int) {
				testutil.Eventually(t, testutil.Limit, func() bool { burst(to, 64); return ring(to) == 64<<10 }, "a larger ring at rank %d", to)
			}
			grow(1)
			grow(2)
			require.Equal(t, uint64(2), es[0].Stats().Rings.Grown)
			grow(3) // of those, one gives its own back
			s := es[0].Stats()
			require.Positive(t, s.Rings.Refused)
			require.Positive(t, s.Rings.Shrunk)
			require.LessOrEqual(t, s.Rings.Memory, int64(memory))
		})
	}
}

// Without it, rings have their default size at once in jobs of up to 64 ranks, and follow the
// traffic in larger ones.
func TestRingsBySizeOfTheJob(t *testing.T) {
	for _, size := range []int{wholeRings, wholeRings + 1} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			t.Parallel()
			es := simulate(t, size, "sim")
			ctx := testutil.Context(t, testutil.Limit)
			const whole = 512 << 10
			messages := func() MessageStats { return es[0].Peer(1).Stats().Messages }
			burst(ctx, t, es, 1, 2)
			require.Equal(t, RingStats{Limit: defaultRingMemory}, es[0].Stats().Rings)
			if size == wholeRings {
				require.GreaterOrEqual(t, messages().Memory, 2*whole)
				return
			}
			require.LessOrEqual(t, messages().Memory, 16<<10)
			testutil.Eventually(t, testutil.Limit, func() bool { burst(ctx, t, es, 1, 256); return messages().PeerRing == whole }, "a larger ring")
		})
	}
}

// burst sends n messages of two bytes from rank 0 to another, which then receives them.
func burst(ctx context.Context, t *testing.T, es []*Engine, to, n int) {
	t.Helper()
	reqs := make([]Request, n)
	for i := range reqs {
		reqs[i] = es[0].Peer(to).SendTag(uint32(i), []byte{byte(i), byte(to)})
	}
	for i := range reqs {
		b := make([]byte, 2)
		_, err := es[to].Peer(0).RecvTag(uint32(i), b).Wait(ctx)
		require.NoError(t, err)
		require.Equal(t, []byte{byte(i), byte(to)}, b)
	}
	require.NoError(t, WaitAll(ctx, reqs...))
}

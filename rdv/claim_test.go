package rdv

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/scatter"
)

// carrier is a handler with one destination and one source.
type carrier struct {
	quiet
	mem  *memory
	size int
}

func newCarrier(t testing.TB, l fabric.Link, size int) *carrier {
	c := &carrier{quiet: quiet{verdict: Take}, mem: newMemory(t, l, 1, size), size: size}
	c.dst = []fabric.SGE{fabric.NewSGE(c.mem.mem, c.mem.reg.LKey())}
	return c
}

func (c *carrier) Destination(Handle) (fabric.RemoteKey, bool) {
	k := c.mem.reg.Key()
	k.Len = uint64(c.size)
	return k, true
}

func (c *carrier) Source(uint64) (fabric.SGE, uint32, bool) {
	return fabric.NewSGE(c.mem.mem[:c.size], c.mem.reg.LKey()), c.mem.reg.Key().RKey, true
}

func (c *carrier) Into(_ uint64, n uint32) (fabric.SGE, bool) {
	return fabric.NewSGE(c.mem.mem[:n], c.mem.reg.LKey()), true
}

// transfer is a message of a that b has matched and offered, and not begun to fetch.
type transfer struct {
	a, b   *side
	ha, hb *carrier
}

func offered(t *testing.T, open opener, size int) transfer {
	la, lb := open(t)
	x := transfer{ha: newCarrier(t, la, size), hb: newCarrier(t, lb, size)}
	x.a, x.b = pairOn(t, la, lb, x.ha, x.hb, Options{}, Options{})
	testutil.Fill(x.ha.mem.mem, 5, 0)
	d := scatter.Descriptor{
		Messages: []scatter.Message{{Pos: 1, Size: uint32(size)}},
		Regions:  []scatter.Region{{Addr: x.ha.mem.reg.Addr(), Len: uint32(size), RKey: x.ha.mem.reg.Key().RKey}},
	}
	_, res, err := x.a.ch.Send(&d, 0, 1)
	require.NoError(t, err)
	require.Equal(t, Accepted, res)
	require.NoError(t, x.a.ch.Flush())
	testutil.Eventually(t, testutil.Limit, func() bool {
		require.NoError(t, x.b.turn())
		return len(x.hb.met) > 0
	}, "the announcement")
	require.NoError(t, x.b.ch.Flush())
	require.Zero(t, x.b.ch.Stats().Reads)
	require.NotNil(t, x.b.ch.shares.of(shareIncoming, 0))
	return x
}

func (s *side) until(t *testing.T, what string, done func() bool) {
	testutil.Eventually(t, testutil.Limit, func() bool { require.NoError(t, s.turn()); return done() }, what)
}

// The end that makes progress carries a transfer out, while the other does nothing at all.
func TestEitherEndCarries(t *testing.T) {
	t.Parallel()
	const size = 64 << 10
	for name, open := range map[string]opener{"shm": realLinks["shm"], "sim": simLinks(sim.Options{Caps: caps("ibv", mapped)})} {
		if open == nil {
			continue // a system without that link
		}
		t.Run(name+"/sender", func(t *testing.T) {
			t.Parallel()
			x := offered(t, open, size)
			x.a.until(t, "the sender's end of the transfer", func() bool { return len(x.ha.sent) > 0 })
			require.NoError(t, x.ha.sent[0])
			require.Empty(t, x.hb.received)
			x.b.until(t, "the message", func() bool { return len(x.hb.received) > 0 })
			require.NoError(t, x.hb.received[0])
			require.NoError(t, testutil.Verify(x.hb.mem.mem[:size], 5, 0))
			require.EqualValues(t, 1, x.a.ch.Stats().Carried)
			require.EqualValues(t, 1, x.b.ch.Stats().Placed)
			require.Zero(t, x.b.ch.Stats().Reads)
			x.idle(t)
		})
		t.Run(name+"/receiver", func(t *testing.T) {
			t.Parallel()
			x := offered(t, open, size)
			x.b.until(t, "the message", func() bool { return len(x.hb.received) > 0 })
			require.NoError(t, x.hb.received[0])
			require.NoError(t, testutil.Verify(x.hb.mem.mem[:size], 5, 0))
			x.a.until(t, "the sender's end of the transfer", func() bool { return len(x.ha.sent) > 0 })
			require.NoError(t, x.ha.sent[0])
			require.Zero(t, x.a.ch.Stats().Writes)
			require.EqualValues(t, 1, x.b.ch.Stats().Slices)
			require.Zero(t, x.a.ch.Stats().Slices)
			x.idle(t)
		})
	}
}

// idle checks that both ends have forgotten the transfer.
func (x *transfer) idle(t *testing.T) {
	for _, s := range []*side{x.a, x.b} {
		s.until(t, "idle", func() bool { return s.ch.Idle() })
	}
	require.Len(t, x.b.ch.claims.free, maxClaims)
}

// A channel that fails keeps the destination of a transfer that the peer has claimed until the
// peer can no longer write, and gives back one that it has not.
func TestClaimedDestinationAfterFailure(t *testing.T) {
	t.Parallel()
	for name, claimed := range map[string]bool{"claimed": true, "open": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := offered(t, simLinks(sim.Options{Caps: caps("ibv", mapped)}), 64<<10)
			if claimed {
				claimWord(x.b.ch.claims.mem, int(x.b.ch.shares.of(shareIncoming, 0).number)).Add(1 << backShift)
			}
			x.b.ch.Fail(ErrClosed)
			require.Equal(t, !claimed, len(x.hb.received) > 0)
			x.b.ch.Sever(nil)
			require.Len(t, x.hb.received, 1)
			require.ErrorIs(t, x.hb.received[0], ErrClosed)
		})
	}
}

// What a peer that violates the rules of claims may send.
func TestHostileClaims(t *testing.T) {
	t.Parallel()
	const size = 64 << 10
	for name, c := range map[string]struct {
		play func(t *testing.T, x *transfer) (victim *side)
		want error
	}{
		"placed without a claim": {func(t *testing.T, x *transfer) *side {
			x.a.inject(t, KindPlaced, x.b.ch.in[0].id, 0, nil)
			return x.b
		}, ErrClaim},
		"placed after the fetch": {func(t *testing.T, x *transfer) *side {
			x.b.until(t, "the message", func() bool { return len(x.hb.received) > 0 })
			x.a.inject(t, KindPlaced, x.b.ch.in[0].id, 0, nil)
			return x.b
		}, ErrUnknownID},
		"cts of another size": {func(t *testing.T, x *transfer) *side {
			x.ha.size-- // the CTS names more than the message
			return x.a
		}, ErrSize},
		"fin of a claimed transfer": {func(t *testing.T, x *transfer) *side {
			x.a.until(t, "the CTS", func() bool { return x.a.ch.shares.n > 0 })
			sh := x.a.ch.shares.of(shareOutgoing, 0)
			sh.claimed, sh.state = 1, slicePosted // the link takes its time
			x.b.inject(t, KindFIN, x.b.ch.in[0].id, 0, nil)
			return x.a
		}, ErrClaim},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := offered(t, simLinks(sim.Options{Caps: caps("ibv", mapped)}), size)
			victim := c.play(t, &x)
			testutil.Eventually(t, testutil.Limit, func() bool { _ = victim.turn(); return victim.ch.Err() != nil }, "the end of the channel")
			require.ErrorIs(t, victim.ch.Err(), ErrProtocol)
			require.ErrorIs(t, victim.ch.Err(), c.want)
		})
	}
}

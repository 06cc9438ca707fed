package rdv

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
)

// What a peer that violates the rules of shared transfers may send, and store in the claim word.
func TestHostileShares(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	advert := func(x *transfer) ID { return x.ha.adverts[0].ID }
	word := func(x *transfer) *share { return x.b.ch.shares.of(shareAdvert, advert(x).slot()) }
	store := func(t *testing.T, x *transfer, add uint64) {
		x.b.until(t, "the share", func() bool { return word(x) != nil })
		claimWord(x.b.ch.claims.mem, int(word(x).number)).Add(add)
	}
	for name, c := range map[string]struct {
		play func(t *testing.T, x *transfer) (victim *side)
		want error
	}{
		"share twice": {func(t *testing.T, x *transfer) *side {
			x.a.inject(t, KindShare, advert(x), size, appendShare(nil, sharing{addr: 8, rkey: 1}))
			return x.b
		}, ErrUnknownID},
		"share of nothing": {func(t *testing.T, x *transfer) *side {
			x.a.inject(t, KindShare, makeID(3, 1), size, appendShare(nil, sharing{addr: 8, rkey: 1}))
			return x.b
		}, ErrUnknownID},
		"share without a source": {func(t *testing.T, x *transfer) *side {
			x.a.inject(t, KindShare, advert(x), size, appendShare(nil, sharing{addr: 8}))
			return x.b
		}, ErrMessage},
		"share truncated": {func(t *testing.T, x *transfer) *side {
			x.a.inject(t, KindShare, advert(x), size, appendShare(nil, sharing{addr: 8, rkey: 1})[:shareSize-1])
			return x.b
		}, ErrMessage},
		"decline after share": {func(t *testing.T, x *transfer) *side {
			x.a.inject(t, KindDecline, advert(x), 0, nil)
			return x.b
		}, ErrUnknownID},
		"done before the end": {func(t *testing.T, x *transfer) *side {
			x.a.inject(t, KindDone, advert(x), size, aDone())
			return x.b
		}, ErrClaim},
		"done of less": {func(t *testing.T, x *transfer) *side {
			x.a.inject(t, KindDone, advert(x), size-1, aDone())
			return x.b
		}, ErrSize},
		"filled without a share": {func(t *testing.T, x *transfer) *side {
			x.b.inject(t, KindFilled, makeID(3, 1), 0, nil)
			return x.a
		}, ErrUnknownID},
		"filled of another generation": {func(t *testing.T, x *transfer) *side {
			x.b.inject(t, KindFilled, advert(x)+1<<16, 0, nil)
			return x.a
		}, ErrUnknownID},
		"filled in between": {func(t *testing.T, x *transfer) *side {
			sh := x.a.ch.shares.of(shareWrite, advert(x).slot())
			sh.claimed, sh.state = 1, slicePosted // the link takes its time
			x.b.inject(t, KindFilled, advert(x), 0, nil)
			return x.a
		}, ErrClaim},
		"filled with more": {func(t *testing.T, x *transfer) *side {
			x.b.inject(t, KindFilled, advert(x), 0, []byte{1})
			return x.a
		}, ErrMessage},
		"all claimed, and more": {func(t *testing.T, x *transfer) *side {
			store(t, x, 9<<backShift)
			return x.b
		}, ErrClaim},
		"copied and not claimed": {func(t *testing.T, x *transfer) *side {
			store(t, x, 8<<copiedShift)
			return x.b
		}, ErrClaim},
		"another id": {func(t *testing.T, x *transfer) *side {
			store(t, x, 1)
			return x.b
		}, ErrClaim},
		"a claim in the receiver's name": {func(t *testing.T, x *transfer) *side {
			store(t, x, 1<<frontShift)
			return x.b
		}, ErrClaim},
		"a claim in the sender's name": {func(t *testing.T, x *transfer) *side {
			claimWord(x.b.ch.claims.mem, int(x.b.ch.mine[advert(x).slot()].word-1)).Add(1 << backShift)
			return x.a
		}, ErrClaim},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := shared(t, simLinks(sim.Options{Caps: caps("ibv", mapped)}), size)
			victim := c.play(t, &x)
			testutil.Eventually(t, testutil.Limit, func() bool { _ = victim.turn(); return victim.ch.Err() != nil }, "the end of the channel")
			require.ErrorIs(t, victim.ch.Err(), ErrProtocol)
			require.ErrorIs(t, victim.ch.Err(), c.want)
			for _, s := range []*side{x.a, x.b} {
				s.ch.Sever(nil)
			}
		})
	}
}

// A destination, and the source of a shared write, go back after a failure when neither this end's
// link nor the peer uses them any longer, and then exactly once.
func TestSharedMemoryAfterFailure(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	for name, c := range map[string]struct {
		sender, posted bool
	}{
		"receiver":               {false, false},
		"receiver, slice posted": {false, true},
		"sender":                 {true, false},
		"sender, slice posted":   {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := shared(t, simLinks(sim.Options{Caps: caps("ibv", mapped)}), size)
			victim, use := x.b, shareAdvert
			ended := func() []error { return x.hb.filled }
			if c.sender {
				victim, use = x.a, shareWrite
				ended = func() []error { return x.ha.sent }
			} else {
				x.b.until(t, "the share", func() bool { return x.b.ch.shares.n > 0 })
			}
			sh := victim.ch.shares.of(use, x.ha.adverts[0].ID.slot())
			for c.posted && sh.state != slicePosted {
				_, err := victim.ch.Progress() // claims and posts; the link is not polled
				require.NoError(t, err)
			}
			victim.ch.Fail(ErrClosed)
			require.Empty(t, ended(), "the peer may use it")
			victim.ch.Sever(nil)
			if c.posted {
				require.Empty(t, ended(), "the link may use it")
				testutil.Eventually(t, testutil.Limit, func() bool { victim.poll(); return len(ended()) > 0 }, "the completion")
			}
			require.Len(t, ended(), 1)
			require.ErrorIs(t, ended()[0], ErrClosed)
			require.Zero(t, victim.ch.shares.n)
			_, _ = victim.ch.Progress()
			require.Len(t, ended(), 1)
		})
	}
}

// A peer that has claimed slices and does not copy them is overdue, on either side; one that has
// none is not, nor is a transfer that this end can continue.
func TestOverdueSlices(t *testing.T) {
	t.Parallel()
	const size, rate = 1 << 20, 1 << 20
	const limit = time.Second
	for name, sender := range map[string]bool{"sender": true, "receiver": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := shared(t, simLinks(sim.Options{Caps: caps("ibv", mapped)}), size)
			x.b.until(t, "the share", func() bool { return x.b.ch.shares.n > 0 })
			w := claimWord(x.b.ch.claims.mem, int(x.b.ch.mine[x.ha.adverts[0].ID.slot()].word-1))
			victim := x.b
			if sender {
				victim = x.a
				w.Add(1 << frontShift)
			} else {
				w.Add(1 << backShift)
			}
			require.False(t, victim.ch.Overdue(time.Hour, limit, rate), "the victim has slices to copy")
			victim.until(t, "its slices", func() bool { return victim.ch.Stats().Slices == 7 && victim.ch.shares.all[0].state == sliceOver })
			require.False(t, victim.ch.Overdue(limit, limit, rate), "the copy may take as long")
			require.True(t, victim.ch.Overdue(limit, limit, rate))
			require.NoError(t, victim.turn())
			require.NoError(t, victim.ch.Err())
			require.Empty(t, append(x.hb.filled, x.ha.sent...))
		})
	}
}

// More transfers than there are claim words are carried out by one end.
func TestMoreTransfersThanClaims(t *testing.T) {
	t.Parallel()
	const size = 256 << 10
	o := Options{Transfers: 2 * maxClaims, Adverts: 2 * maxClaims}
	la, lb := simLinks(sim.Options{Caps: caps("ibv", mapped)})(t)
	x := transfer{ha: newCarrier(t, la, size), hb: newCarrier(t, lb, size)}
	x.a, x.b = pairOn(t, la, lb, x.ha, x.hb, o, o)
	testutil.Fill(x.ha.mem.mem, 5, 0)
	for i := range 2 * maxClaims {
		testutil.Eventually(t, testutil.Limit, func() bool {
			_, res, err := x.b.ch.Advertise(Want{Pos: uint64(i)}, x.hb.mem.reg.Key(), uint64(i))
			require.NoError(t, err)
			require.NoError(t, x.b.ch.Flush())
			if res != Accepted {
				require.NoError(t, x.a.turn())
				require.NoError(t, x.b.turn())
			}
			return res == Accepted
		}, "room for the advert")
	}
	x.a.until(t, "the adverts", func() bool { return len(x.ha.adverts) == 2*maxClaims })
	require.Empty(t, x.b.ch.claims.free)
	s, _, _ := x.ha.Source(0)
	for _, ad := range x.ha.adverts {
		testutil.Eventually(t, testutil.Limit, func() bool {
			res, err := x.a.ch.Write(ad.ID, 1, 2, []fabric.SGE{s}, 0)
			require.NoError(t, err)
			require.NoError(t, x.a.turn())
			require.NoError(t, x.b.turn())
			return res == Accepted
		}, "room for the write")
	}
	x.play(t, [2]int{1, 1}, func() bool { return len(x.ha.sent) == 2*maxClaims && len(x.hb.filled) == 2*maxClaims })
	for i := range x.ha.sent {
		require.NoError(t, x.ha.sent[i])
		require.NoError(t, x.hb.filled[i])
	}
	require.NoError(t, testutil.Verify(x.hb.mem.mem, 5, 0))
	x.idle(t)
	require.Positive(t, x.a.ch.Stats().Slices)
	require.Positive(t, x.a.ch.Stats().Writes)
}

// Shared transfers are copied one after the other, so that they end one after the other.
func TestOldestShareFirst(t *testing.T) {
	t.Parallel()
	const size, n = 512 << 10, 3
	la, lb := simLinks(sim.Options{Caps: caps("ibv", mapped)})(t)
	x := transfer{ha: newCarrier(t, la, size), hb: newCarrier(t, lb, size)}
	x.a, x.b = pairOn(t, la, lb, x.ha, x.hb, Options{}, Options{})
	for i := range n {
		_, res, err := x.b.ch.Advertise(Want{Pos: uint64(i)}, x.hb.mem.reg.Key(), uint64(i))
		require.NoError(t, err)
		require.Equal(t, Accepted, res)
	}
	require.NoError(t, x.b.ch.Flush())
	x.a.until(t, "the adverts", func() bool { return len(x.ha.adverts) == n })
	s, _, _ := x.ha.Source(0)
	for i := range n {
		res, err := x.a.ch.Write(x.ha.adverts[i].ID, uint64(i), 2, []fabric.SGE{s}, uint64(i))
		require.NoError(t, err)
		require.Equal(t, Accepted, res)
	}
	for i := range n {
		x.a.until(t, "a write", func() bool { return len(x.ha.sent) > i })
		require.Less(t, x.a.ch.Stats().Slices, uint64(4*(i+2)), "slices of transfers behind the next one")
	}
	x.play(t, [2]int{1, 1}, func() bool { return len(x.hb.filled) == n })
}

// A sender that has not heard yet that its transfer has ended finds the claim word in use for an
// advert that has the same id, and leaves it alone.
func TestClaimWordInUseAgain(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	x := offered(t, simLinks(sim.Options{Caps: caps("ibv", mapped)}), size)
	x.a.until(t, "the CTS", func() bool { return x.a.ch.shares.n > 0 })
	require.Zero(t, x.a.ch.Stats().Slices)
	id, word := x.b.ch.in[0].id, x.b.ch.shares.of(shareIncoming, 0).number
	x.b.until(t, "the message", func() bool { return len(x.hb.received) > 0 })
	testutil.Eventually(t, testutil.Limit, func() bool {
		require.NoError(t, x.b.turn())
		ad, res, err := x.b.ch.Advertise(Want{Pos: 1}, x.hb.mem.reg.Key(), 9)
		require.NoError(t, err)
		if res == Accepted {
			require.Equal(t, id, ad)
		}
		return res == Accepted
	}, "the advert")
	require.EqualValues(t, word+1, x.b.ch.mine[0].word)
	require.NoError(t, x.b.ch.Flush())
	x.a.until(t, "the end of the transfer", func() bool { return len(x.ha.sent) > 0 })
	require.NoError(t, x.ha.sent[0])
	require.Zero(t, x.a.ch.Stats().Slices, "slices of a message that has ended")
	x.a.until(t, "the advert", func() bool { return len(x.ha.adverts) > 0 })
}

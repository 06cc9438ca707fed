package coll

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/testutil"
)

// unlaunched returns an operation in the team's table that is not launched, and the first
// header of a peer for it.
func unlaunched(t *testing.T, team *Team, a arguments, alg algorithm) (*operation, header) {
	t.Helper()
	o := team.t.unused()
	o.arguments = a
	o.bufs = append([][]byte{nil}, o.bufs...)
	testutil.Holding(&team.t.mu, func() {
		require.NoError(t, o.renew(key{team.ch.tag, team.ch.next}, &Request{}, false))
		team.ch.next++
		team.t.ops[o.key] = o
	})
	c := o.call
	c.alg = alg
	return o, header{tag: o.key.tag, seq: o.key.seq, call: c}
}

// A rank that leaves while an operation begins here, for which its message has come, does not
// fail it.
func TestLeaveDuringLaunch(t *testing.T) {
	ts := worlds(t, job(t, 2, "shm"))
	o, h := unlaunched(t, ts[1], arguments{problem: problem{call: call{kind: kindBarrier}, rank: 1, team: 2}}, algDissemination)
	ts[1].t.take(0, &h)
	require.True(t, o.set(o.schedule(algDissemination))) // as launch does first
	ts[1].t.leave(0, lostError(0, "collective", rma.ErrPeerGone))
	require.NoError(t, ts[1].Err())
	req := o.request
	ts[1].t.launch(o, algDissemination, false)
	require.NoError(t, req.Wait(testutil.Context(t, testutil.Limit)))
	require.NoError(t, ts[1].Err())

	// Its message for the next one has not come.
	o, _ = unlaunched(t, ts[1], arguments{problem: problem{call: call{kind: kindBarrier}, rank: 1, team: 2}}, algDissemination)
	req = o.request
	ts[1].t.launch(o, algDissemination, false)
	require.ErrorIs(t, req.Wait(testutil.Context(t, testutil.Limit)), rma.ErrPeerGone)
}

// A rank that has left when a team is complete here fails only operations that need it.
func TestLeaveBeforeTeamIsComplete(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		es := job(t, 2, fabric)
		ctx := testutil.Context(t, testutil.Limit)
		ts := worlds(t, es)
		sub := ts[1].t.s.reserve("pair")
		const alone = "barrier=dissemination,bcast=binomial" // the choice would need both ranks
		numbers := make([]uint32, 2)
		each(t, ts, func(r int, team *Team) error {
			if r == 1 {
				return Allgather(ctx, team, []uint32{sub.number}, numbers)
			}
			own, all := team.t.s.reserve("pair"), make([]uint32, 2)
			if err := Allgather(ctx, team, []uint32{own.number}, all); err != nil {
				return err
			}
			pair, err := own.s.complete(own, []int{0, 1}, all)
			if err != nil {
				return err
			}
			if err := pair.Force(alone); err != nil {
				return err
			}
			if err := Bcast(ctx, pair, 0, []int64{7}); err != nil {
				return err
			}
			return es[0].Close()
		})
		s := ts[1].t.s
		testutil.Eventually(t, testutil.Limit, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.lost[0] != nil }, "the end of rank 0")
		pair, err := s.complete(sub, []int{0, 1}, numbers)
		require.NoError(t, err)
		require.NoError(t, pair.Force(alone))
		got := make([]int64, 1)
		require.NoError(t, Bcast(ctx, pair, 0, got))
		require.Equal(t, int64(7), got[0])
		require.ErrorIs(t, Barrier(ctx, pair), rma.ErrPeerGone)
	})
}

// A member that leaves when the first rank has made the team, but before the others know,
// does not end their calls of New. The first rank's end does.
func TestLeaveBeforeTable(t *testing.T) {
	for _, gone := range []int{1, 0} {
		es := job(t, 3, "shm")
		ctx := testutil.Context(t, testutil.Limit)
		s := worlds(t, es)[2].t.s
		ended := make(chan error, 1)
		go func() {
			_, err := New(ctx, es[2], []int{0, 1, 2}, "team")
			ended <- err
		}()
		var f *forming
		find := func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			f = s.forming["team"]
			return f != nil
		}
		testutil.Eventually(t, testutil.Limit, find, "the call")
		send := func(m frame) {
			m.name, m.nonce = "team", f.nonce
			require.NoError(t, es[0].Peer(2).SendTag(tagControl, m.bytes()).Wait(ctx))
		}
		send(frame{kind: frameAsk})
		testutil.Eventually(t, testutil.Limit, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return f.ready }, "the answer")
		(*receiver)(s).Gone(gone, rma.ErrPeerGone)
		if gone == 1 {
			send(frame{kind: frameTable, table: [][2]uint32{{0, 1}, {1, 1}, {2, f.own}}})
			require.NoError(t, <-ended)
		} else {
			require.ErrorIs(t, <-ended, rma.ErrPeerGone)
		}
	}
}

// A rank that has left stays lost when the event of its connection is handled later.
func TestLeaveBeforeEvent(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		es := job(t, 2, fabric)
		ctx := testutil.Context(t, testutil.Limit)
		ts := worlds(t, es)
		each(t, ts, func(_ int, team *Team) error { return Barrier(ctx, team) })
		require.NoError(t, es[0].Close())
		s := ts[1].t.s
		lost := func() (err error) {
			testutil.Holding(&s.mu, func() { err = s.lost[0] })
			return err
		}
		testutil.Eventually(t, testutil.Limit, func() bool { return lost() != nil }, "the end of rank 0")
		s.found(0)
		require.ErrorIs(t, lost(), rma.ErrPeerGone)
		_, err := New(ctx, es[1], []int{1, 0}, "pair")
		require.ErrorIs(t, err, rma.ErrPeerGone)
	})
}

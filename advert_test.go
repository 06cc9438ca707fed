package rma

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/testutil"
)

// quiesce makes both ranks exchange one message each way and waits until rank 0 no longer
// polls for messages of rank 1.
func quiesce(t *testing.T, es []*Engine) {
	t.Helper()
	together(t, es, func(ctx context.Context, e *Engine) error {
		p := e.Peer(1 - e.Rank())
		r := p.Recv(make([]byte, 8))
		if err := p.Send([]byte{1}).Wait(ctx); err != nil {
			return err
		}
		_, err := r.Wait(ctx)
		return err
	})
	require.Eventually(t, func() (off bool) {
		es[0].Progress()
		es[1].Progress()
		es[0].prog.Do(func() { off = !es[0].Peer(1).msg.Busy() })
		return off
	}, testutil.Limit, 1)
}

// A receive whose advert and message cross each other ends, although the sender has no
// further operation with this rank and does not poll for its messages.
func TestLateAdvertIsAnswered(t *testing.T) {
	t.Parallel()
	for _, fabric := range []string{"shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) { t.Parallel(); crossing(t, fabric) })
	}
}

func crossing(t *testing.T, fabric string) {
	es := open(t, 2, fabric)
	quiesce(t, es)
	a, b := es[0], es[1]
	buf := make([]byte, 1<<20)
	var recv RecvRequest
	advertised, looks := uint64(0), false
	advertise := func() {
		b.proto.Step()
		advertised = b.Peer(0).msg.Channel().Stats().Adverts
	}
	// The owner of both engines decides the order of events, and that neither link is
	// polled.
	a.prog.Do(func() {
		b.prog.Do(func() {
			recv = b.Peer(0).Recv(buf)
			if fabric == "tcp" { // the message is in the socket
				a.Peer(1).Send([]byte("late")).Forget()
				a.proto.Step()
			}
			advertise()
		})
		if fabric == "shm" { // a send that completes at once does not check for adverts
			a.Peer(1).msg.Channel().SendNow(0, []byte("late"))
		}
		looks = a.Peer(1).msg.Busy()
	})
	require.EqualValues(t, 1, advertised)
	require.False(t, looks)
	n, err := recv.Wait(testutil.Context(t, testutil.Limit))
	require.NoError(t, err)
	require.Equal(t, "late", string(buf[:n]))
}

// An advertised receive is returned by a peer that has no operation with this rank.
func TestAdvertIsGivenBack(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, fabric string) {
		es := open(t, 2, fabric)
		ctx := testutil.Context(t, testutil.Limit)
		quiesce(t, es)
		b := es[1]
		var adverts uint64
		r := b.Peer(0).Recv(make([]byte, 1<<20))
		require.Eventually(t, func() bool {
			b.prog.Do(func() {
				b.proto.Step()
				adverts = b.Peer(0).msg.Channel().Stats().Adverts
			})
			return adverts > 0
		}, testutil.Limit, 1)
		r.Cancel()
		_, err := r.Wait(ctx)
		require.ErrorIs(t, err, ErrCanceled)
	})
}

// advertised posts a receive of e from rank 0, and waits until it is advertised.
func advertised(t *testing.T, e *Engine) RecvRequest {
	r := e.Peer(0).Recv(make([]byte, 1<<20))
	testutil.Eventually(t, testutil.Limit, func() (yes bool) {
		e.prog.Do(func() {
			e.proto.Step()
			yes = e.Peer(0).msg.Channel().Stats().Adverts > 0
		})
		return yes
	}, "an advert")
	return r
}

// deafen makes e ignore all control messages of rank 1, while it makes progress; hear ends that.
func deafen(t *testing.T, e *Engine) (hear func()) {
	var ch *message.Channel
	e.prog.Do(func() { ch = e.Peer(1).msg.Renew() })
	require.NotNil(t, ch)
	hear = func() {
		if ch != nil {
			e.prog.Do(func() { e.Peer(1).msg.Opened(ch, nil) })
			ch = nil
		}
	}
	t.Cleanup(hear)
	return hear
}

// A peer that makes progress but never gives back the memory of a receive that was withdrawn is
// cut off, and the receive ends. A new connection works.
func TestAdvertThatIsKept(t *testing.T) {
	hanging(t, 2, time.Second, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		quiesce(t, es)
		theirs, err := es[1].Alloc(8)
		require.NoError(t, err)
		own, err := es[0].Alloc(8)
		require.NoError(t, err)
		r := advertised(t, es[1])
		hear := deafen(t, es[0])
		r.Cancel()
		_, err = r.Wait(ctx)
		require.ErrorIs(t, err, ErrPeerHung)
		require.ErrorContains(t, err, "memory of a withdrawn receive")
		require.ErrorIs(t, es[1].Peer(0).Send([]byte("x")).Wait(ctx), ErrPeerHung)
		// A queue pair does not tell a peer without requests that the other side has closed.
		_ = until(ctx, func() error { return es[0].Peer(1).Put(theirs.Key().At(0), own.Slice(0, 8)).Wait(ctx) })
		testutil.Eventually(t, testutil.Limit, func() bool { return es[0].Peer(1).Stats().Err != nil }, "the end of the connection at the peer")
		hear()
		require.NoError(t, es[1].Peer(0).Reset(ctx))
		together(t, es, func(ctx context.Context, e *Engine) error {
			p := e.Peer(1 - e.Rank())
			r := p.Recv(make([]byte, 8))
			return errors.Join(p.Send([]byte("again")).Wait(ctx), r.Request.Wait(ctx))
		})
	})
}

// A peer that answers before HangTimeout has passed keeps its connection.
func TestAdvertThatIsGivenBackLate(t *testing.T) {
	hanging(t, 2, time.Minute, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		quiesce(t, es)
		r := advertised(t, es[1])
		hear := deafen(t, es[0])
		b := es[1].proto
		var hung []*Peer
		pass := func(d time.Duration) {
			es[1].prog.Do(func() {
				b.peers[0].pulse.looking = false // of the heartbeat, no time passes
				hung = b.round(d)
			})
		}
		pass(time.Hour) // does not count: nothing is owed
		require.Empty(t, hung)
		r.Cancel()
		pass(59 * time.Second)
		require.Empty(t, hung)
		require.False(t, r.Done())
		hear()
		_, err := r.Wait(ctx)
		require.ErrorIs(t, err, ErrCanceled)
		pass(59 * time.Second)
		require.Empty(t, hung)
		require.NoError(t, es[1].Peer(0).Send([]byte("x")).Wait(ctx))
	})
}

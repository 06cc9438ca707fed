package rma

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

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

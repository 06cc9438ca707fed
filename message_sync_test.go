package rma

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// A synchronous send of any size ends when its message has been matched and not before, also
// if the next one of its tag has not been: to another rank and to the rank itself.
func TestSendSync(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		es := open(t, 2, fabric)
		ctx := testutil.Context(t, testutil.Limit)
		for to := range es {
			p, back := es[0].Peer(to), es[to].Peer(0)
			for _, n := range []int{0, 1, 100, 5000, 200_000} {
				msg := testutil.Payload(n, uint64(n), 1)
				first, second := SendSync(p, 1, msg), SendSync(p, 1, msg)
				after := p.SendTag(2, []byte{7})
				buf := make([]byte, n+1)
				got, err := back.RecvTag(2, buf).Wait(ctx) // the others are before it
				require.NoError(t, err)
				require.Equal(t, 1, got)
				require.NoError(t, after.Wait(ctx))
				require.False(t, first.Done(), "%d bytes to rank %d", n, to)
				for _, req := range []Request{first, second} {
					got, err = back.RecvTag(1, buf).Wait(ctx)
					require.NoError(t, err)
					require.Equal(t, msg, buf[:got])
					require.NoError(t, req.Wait(ctx), "%d bytes to rank %d", n, to)
				}
			}
		}
	})
}

// A receive that is there already ends a synchronous send, whether it is advertised or not.
func TestSendSyncToPostedReceives(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		es := open(t, 2, fabric)
		ctx := testutil.Context(t, testutil.Limit)
		for i := range 40 {
			n := []int{0, 64, 300_000}[i%3]
			msg, buf := testutil.Payload(n, uint64(i), 2), make([]byte, n)
			r := es[1].Peer(0).RecvTag(1, buf)
			require.NoError(t, SendSync(es[0].Peer(1), 1, msg).Wait(ctx))
			_, err := r.Wait(ctx)
			require.NoError(t, err)
			require.Equal(t, msg, buf)
		}
	})
}

// When a synchronous send has ended, the messages before it have arrived, although nothing
// receives them.
func TestSendSyncFlushes(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		es := open(t, 2, fabric)
		ctx := testutil.Context(t, testutil.Limit)
		p, back := es[0].Peer(1), es[1].Peer(0)
		const n = 50
		for i := range n {
			p.SendTag(uint32(i), []byte{byte(i)}).Forget()
		}
		r := back.RecvTag(n, nil)
		require.NoError(t, SendSync(p, n, nil).Wait(ctx))
		require.EqualValues(t, n, es[1].Stats().Messages.Unexpected)
		_, err := r.Wait(ctx)
		require.NoError(t, err)
	})
}

// A synchronous send to a peer that leaves without receiving it fails.
func TestSendSyncToTheGone(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, testutil.Limit)
		es := open(t, 2, fabric)
		p := es[0].Peer(1)
		p.SendTag(1, []byte{1}).Forget()
		req := SendSync(p, 2, []byte{1})
		_, err := es[1].Peer(0).RecvTag(1, make([]byte, 1)).Wait(ctx)
		require.NoError(t, err)
		require.NoError(t, es[1].Close())
		require.ErrorIs(t, req.Wait(ctx), ErrPeerGone)
	})
}

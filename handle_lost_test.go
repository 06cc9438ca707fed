package rma

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// A handler gets no message behind one that was lost with its connection, and all those that come after Peer.Reset.
func TestHandlerAfterReset(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		for _, ranks := range []int{1, 2} { // messages of oneself, of another
			for _, workers := range []int{0, 1} {
				ctx := testutil.Context(t, testutil.Limit)
				es := open(t, ranks, fabric)
				e := es[ranks-1]
				p, got := e.Peer(0), make(chan int, 9)
				h, err := e.HandleWith(HandlerOptions{Tag: 5, Workers: workers}, func(m Envelope, _ [][]byte) { got <- m.Len })
				require.NoError(t, err)
				exchange := func(size int) {
					require.NoError(t, es[0].Peer(e.Rank()).SendTag(5, make([]byte, size)).Wait(ctx))
					select {
					case n := <-got:
						require.Equal(t, size, n)
					case <-ctx.Done():
						require.Fail(t, "not handled", "%d bytes", size)
					}
				}
				exchange(1)
				end, m := (*handlerEnd)(h), Envelope{Tag: 5, Len: 2}
				var lost, behind Landing
				e.prog.Do(func() { lost, behind = end.Arriving(m, false), end.Arriving(m, false) })
				sunder(t, es)
				testutil.Eventually(t, testutil.Limit, func() (ended bool) {
					e.prog.Do(func() { ended = p.down != nil && (p.own || p.msg.Ended()) })
					return ended
				}, "the end of the connection")
				e.prog.Do(func() {
					end.Arrived(m, behind.Token, nil, nil)
					end.Arrived(m, lost.Token, nil, ErrPeerGone)
				})
				require.NoError(t, p.Reset(ctx))
				exchange(8)
				exchange(1 << 20)
			}
		}
	})
}

// A message that was lost on its way gives its place at the worker back: another that was left for want of it is
// offered again.
func TestLostMessageMakesRoom(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, testutil.Limit)
		es := open(t, 2, fabric)
		got := make(chan int, 9)
		h, err := es[1].HandleWith(HandlerOptions{Tag: 5, Workers: 1, Backlog: 1}, func(m Envelope, _ [][]byte) { got <- m.Len })
		require.NoError(t, err)
		end, m := (*handlerEnd)(h), Envelope{Tag: 5, Len: 2}
		var lost Landing
		es[1].prog.Do(func() { lost = end.Arriving(m, false) })
		sent := es[0].Peer(1).SendTag(5, make([]byte, 8))
		testutil.Eventually(t, testutil.Limit, func() (stalled bool) {
			testutil.Holding(&h.workers[0].mu, func() { stalled = h.workers[0].stalled })
			return stalled
		}, "the message has no room")
		es[1].prog.Do(func() { end.Arrived(m, lost.Token, nil, ErrPeerGone) })
		require.NoError(t, sent.Wait(ctx))
		select {
		case n := <-got:
			require.Equal(t, 8, n)
		case <-ctx.Done():
			require.Fail(t, "not offered again")
		}
	})
}

package rma

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// many is more peers than are polled in every step, by far.
const many = 24

// calm steps until peers that only wait are polled seldom (package hub).
func calm(e *Engine) {
	for range 2048 {
		e.Progress()
	}
}

// Silent peers are polled seldom, whatever their number, and those that have
// something to say are heard all the same, also while others never pause.
func TestSilentPeersAreHeard(t *testing.T) {
	t.Parallel()
	const n = many
	es := simulate(t, n+1, "sim")
	e := es[0]
	var recvs [n + 1]RecvRequest
	var bufs [n + 1][8]byte
	post := func(r int) { recvs[r] = e.Peer(r).Recv(bufs[r][:]) }
	// Channels are made at the first message.
	together(t, es, func(ctx context.Context, me *Engine) error {
		if me != e {
			return me.Peer(0).Send([]byte{1}).Wait(ctx)
		}
		for r := 1; r <= n; r++ {
			if _, err := e.Peer(r).Recv(bufs[r][:]).Wait(ctx); err != nil {
				return err
			}
			post(r)
		}
		return nil
	})
	calm(e)
	for _, r := range []int{n, 1, n / 2} {
		require.NoError(t, es[r].Peer(0).Send([]byte{byte(r)}).Wait(t.Context()))
		_, err := recvs[r].Wait(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, r, bufs[r][0])
		post(r)
	}
	// One pair exchanges all the time; the messages of the others come in between.
	ctx := t.Context()
	heard := 0
	for round := 0; heard < n-1; round++ {
		require.Less(t, round, 100*n, "%d of %d are heard", heard, n-1)
		require.NoError(t, es[1].Peer(0).Send([]byte{1}).Wait(ctx))
		_, err := recvs[1].Wait(ctx)
		require.NoError(t, err)
		post(1)
		for _, x := range es {
			x.Progress() // the simulated network moves what was sent when its ends poll
		}
		if r := 2 + round; r <= n {
			require.NoError(t, es[r].Peer(0).Send([]byte{byte(r)}).Wait(ctx))
		}
		for r := 2; r <= n; r++ {
			if recvs[r].op != nil && recvs[r].waitable() && recvs[r].op.Done() {
				_, err := recvs[r].Wait(ctx)
				require.NoError(t, err)
				heard++
			}
		}
	}
}

// What a look for messages costs beside peers that are silent, each with a receive
// posted.
func BenchmarkSilentPeers(b *testing.B) {
	for _, fabric := range []string{"shm", "tcp"} {
		for _, n := range []int{1, 8, 64} {
			b.Run(fmt.Sprint(fabric, "/", n), func(b *testing.B) {
				es := open(b, n+1, fabric)
				var bufs [65][8]byte
				together(b, es, func(ctx context.Context, me *Engine) error {
					if me.Rank() != 0 {
						return me.Peer(0).Send([]byte{1}).Wait(ctx)
					}
					for r := 1; r <= n; r++ {
						if _, err := me.Peer(r).Recv(bufs[r][:]).Wait(ctx); err != nil {
							return err
						}
						me.Peer(r).Recv(bufs[r][:])
					}
					return nil
				})
				calm(es[0])
				b.ReportAllocs()
				for b.Loop() {
					es[0].Progress()
				}
			})
		}
	}
}

// A conversation opens one channel a connection, however often and from wherever it is
// begun.
func TestChannelIsOpenedOnce(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		es := open(t, 2, fabric)
		for range 3 {
			(*messageHost)(es[0].Peer(1)).Open()
		}
		ctx := testutil.Context(t, patience)
		buf := make([]byte, 8)
		for range 3 {
			recv := es[1].Peer(0).Recv(buf)
			require.NoError(t, es[0].Peer(1).Send([]byte("once")).Wait(ctx))
			n, err := recv.Wait(ctx)
			require.NoError(t, err)
			require.Equal(t, "once", string(buf[:n]))
		}
		require.NoError(t, es[0].Peer(1).Stats().Err)
	})
}

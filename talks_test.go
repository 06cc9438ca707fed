package rma

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// check says whether the list is what it claims to be.
func (l *talks) check() error {
	if l.warm > len(l.list) {
		return fmt.Errorf("%d warm of %d", l.warm, len(l.list))
	}
	for i, p := range l.list {
		if !p.talk.on || p.talk.at != i {
			return fmt.Errorf("peer %d is at %d, says %v, %d", p.rank, i, p.talk.on, p.talk.at)
		}
	}
	return nil
}

// calm steps until every peer that only waits is cold.
func calm(t *testing.T, e *Engine) {
	t.Helper()
	for range coldAfter + 10 {
		e.prog.Do(func() { e.proto.hub.step() })
	}
	e.prog.Do(func() { require.NoError(t, e.proto.hub.talks.check()) })
}

// Silent peers are looked at seldom, whatever their number, and those that have
// something to say are heard within as many steps as it takes to come round, also
// while others never pause.
func TestSilentPeersAreHeard(t *testing.T) {
	t.Parallel()
	const n = 3 * warmFew
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
	calm(t, e)
	e.prog.Do(func() {
		require.Len(t, e.proto.hub.talks.list, n)
		require.Zero(t, e.proto.hub.talks.warm)
	})
	for _, r := range []int{n, 1, n / 2} {
		require.NoError(t, es[r].Peer(0).Send([]byte{byte(r)}).Wait(t.Context()))
		_, err := recvs[r].Wait(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, r, bufs[r][0])
		e.prog.Do(func() {
			require.NoError(t, e.proto.hub.talks.check())
			require.LessOrEqual(t, e.proto.hub.talks.warm, 3)
		})
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
			if recvs[r].r.op != nil && recvs[r].r.waitable() && recvs[r].r.op.Done() {
				_, err := recvs[r].Wait(ctx)
				require.NoError(t, err)
				heard++
			}
		}
	}
	e.prog.Do(func() { require.NoError(t, e.proto.hub.talks.check()) })
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
				for range 2 * coldAfter {
					es[0].Progress()
				}
				b.ReportAllocs()
				for b.Loop() {
					es[0].Progress()
				}
			})
		}
	}
}

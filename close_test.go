package rma

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// What is to be done before Close is done once, while the engine still works, and
// every Close waits for it.
func TestBeforeClose(t *testing.T) {
	t.Parallel()
	es := open(t, 2, "shm")
	var done int
	es[0].BeforeClose(func() {
		require.NoError(t, es[0].Peer(1).Send([]byte("bye")).Wait(testutil.Context(t, patience)))
		done++
	})
	got := make(chan error, 1)
	go func() {
		_, err := es[1].Peer(0).Recv(make([]byte, 3)).Wait(testutil.Context(t, patience))
		got <- err
	}()
	var g errgroup.Group
	for range 3 {
		g.Go(es[0].Close)
	}
	require.NoError(t, g.Wait())
	require.Equal(t, 1, done)
	require.NoError(t, <-got)
	es[0].BeforeClose(func() { done++ })
	require.NoError(t, es[0].Close())
	require.Equal(t, 1, done)
}

// A peer whose memory the link reaches by itself is said to be so, once connected.
func TestUnaided(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, link string) {
		es := open(t, 2, link)
		require.False(t, es[0].Peer(1).Unaided())
		for _, p := range []*Peer{es[0].Peer(1), es[0].Peer(0)} {
			ep, err := p.conn.Endpoint(testutil.Context(t, patience))
			require.NoError(t, err)
			alone := link == "ibv"
			if n, ok := ep.(interface{ Near() fabric.Vicinity }); ok {
				alone = n.Near().Reason == "" // process_vm calls are not refused here
			}
			require.Equal(t, alone || p.own, p.Unaided())
		}
	})
}

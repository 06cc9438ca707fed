package rma

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// first returns the first event with that state.
func first(ctx context.Context, e *Engine, s PeerState) (ev PeerEvent) {
	for ev = range e.Watch(ctx) {
		if ev.State == s {
			return ev
		}
	}
	return PeerEvent{}
}

// Watch alone, without operations, detects a hung peer.
func TestWatchFindsAPeerThatHangs(t *testing.T) {
	hanging(t, 3, time.Second, func(t *testing.T, es []*Engine) {
		mems, keys := share(t, es, 4096)
		ctx := testutil.Context(t, testutil.Limit)
		require.NoError(t, es[1].Peer(0).Put(keys[0].At(0), mems[1].Slice(0, 8)).Wait(ctx))
		require.Equal(t, 1, first(ctx, es[0], PeerUp).Rank)
		stall(t, es[1])
		ev := first(ctx, es[0], PeerHung)
		require.Equal(t, 1, ev.Rank)
		require.ErrorIs(t, ev.Err, ErrPeerHung)
		require.WithinDuration(t, time.Now(), ev.Time, testutil.Limit)
	})
}

// Watch reports a rank that leaves, with and without a connection to it, also to a Watch
// that begins later.
func TestWatchFindsAPeerThatLeaves(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		es := open(t, 3, fabric)
		mems, keys := share(t, es, 4096)
		ctx := testutil.Context(t, testutil.Limit)
		require.NoError(t, es[1].Peer(0).Put(keys[0].At(0), mems[1].Slice(0, 8)).Wait(ctx))
		require.NoError(t, es[1].Close())
		for _, r := range []int{0, 2, 0, 2} {
			ev := first(ctx, es[r], PeerGone)
			require.Equal(t, 1, ev.Rank)
			require.ErrorIs(t, ev.Err, ErrPeerGone)
		}
	})
}

// A connection that is lost while both sides live is reported as PeerDown.
func TestWatchFindsAConnectionThatIsLost(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		es := open(t, 2, fabric)
		mems, keys := share(t, es, 4096)
		ctx := testutil.Context(t, testutil.Limit)
		require.NoError(t, mems[1].Close())
		require.ErrorIs(t, es[0].Peer(1).Put(keys[1].At(0), mems[0].Slice(0, 8)).Wait(ctx), ErrRemoteAccess)
		ev := first(ctx, es[0], PeerDown)
		require.Equal(t, 1, ev.Rank)
		require.ErrorIs(t, ev.Err, ErrRemoteAccess)
		require.Equal(t, ev, StateOf(es[0].Peer(1)))
		require.NoError(t, es[0].Peer(1).Reset(ctx))
		require.Equal(t, PeerUp, StateOf(es[0].Peer(1)).State)

		// A message over the next connection finds the loss on both sides.
		got := es[1].Peer(0).Recv(make([]byte, 1))
		require.NoError(t, es[0].Peer(1).Send([]byte{1}).Wait(ctx))
		_, err := got.Wait(ctx)
		require.NoError(t, err)
		for r, e := range es {
			require.Equal(t, 1, StateOf(e.Peer(1-r)).Lost)
		}
	})
}

// A slow watcher misses replaced states, but never the last state of a rank.
func TestSlowWatcher(t *testing.T) {
	var ws peerFeed
	ws.tell(PeerEvent{Rank: 3, State: PeerUp})
	w, late := ws.add(), 0
	for range 1000 {
		for r := range 3 {
			ws.tell(PeerEvent{Rank: r, State: PeerUp})
			ws.tell(PeerEvent{Rank: r, State: PeerSilent})
		}
	}
	ws.tell(PeerEvent{Rank: 1, State: PeerHung})
	last := map[int]PeerState{}
	for ; ; late++ {
		ev, ok := ws.next(w)
		if !ok {
			break
		}
		last[ev.Rank] = ev.State
	}
	require.Equal(t, 4, late)
	require.Equal(t, map[int]PeerState{0: PeerSilent, 1: PeerHung, 2: PeerSilent, 3: PeerUp}, last)
	ws.tell(PeerEvent{Rank: 1, State: PeerUp})
	ws.tell(PeerEvent{Rank: 1, State: PeerDown})
	ws.tell(PeerEvent{Rank: 1, State: PeerGone}) // no second loss
	ws.tell(PeerEvent{Rank: 1, State: PeerUp})
	ev, _ := ws.next(w)
	require.Equal(t, PeerUp, ev.State)
	require.Equal(t, 2, ev.Lost, "what was missed is counted")
	ws.remove(w)
	ws.tell(PeerEvent{Rank: 1, State: PeerGone})
	_, ok := ws.next(w)
	require.False(t, ok)
}

// Watching ends with its context, and with the engine.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	es := open(t, 2, "shm")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	watch := func(ctx context.Context) {
		for range es[0].Watch(ctx) {
			t.Error("nothing happens here")
		}
		ended <- struct{}{}
	}
	go watch(ctx)
	cancel()
	<-ended
	go watch(t.Context())
	testutil.Eventually(t, testutil.Limit, func() bool { return es[0].attention.Load() == 1 }, "somebody who watches")
	require.NoError(t, es[0].Close())
	<-ended
	for range es[0].Watch(t.Context()) {
		t.Error("the engine is closed")
	}
	require.Zero(t, es[0].attention.Load())
}

func TestPeerStateNames(t *testing.T) {
	for s, name := range map[PeerState]string{0: "unknown", PeerUp: "up", PeerSilent: "silent", PeerDown: "down", PeerHung: "hung", PeerGone: "gone", 99: "unknown"} {
		require.Equal(t, name, s.String())
	}
}

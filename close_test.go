package rma

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// Functions of BeforeClose run once, while the engine still works, and every Close waits
// for them.
func TestBeforeClose(t *testing.T) {
	t.Parallel()
	es := open(t, 2, "shm")
	var done int
	require.True(t, es[0].BeforeClose(func() {
		require.False(t, es[0].BeforeClose(func() { done++ }), "Close has begun")
		require.NoError(t, es[0].Peer(1).Send([]byte("bye")).Wait(testutil.Context(t, testutil.Limit)))
		done++
	}))
	got := make(chan error, 1)
	go func() {
		_, err := es[1].Peer(0).Recv(make([]byte, 3)).Wait(testutil.Context(t, testutil.Limit))
		got <- err
	}()
	var g errgroup.Group
	for range 3 {
		g.Go(es[0].Close)
	}
	require.NoError(t, g.Wait())
	require.Equal(t, 1, done)
	require.NoError(t, <-got)
	require.False(t, es[0].BeforeClose(func() { done++ }))
	require.NoError(t, es[0].Close())
	require.Equal(t, 1, done)
}

// Whatever is posted just when Close ends, after it was not found closed, ends with ErrClosed: callers of Then hear so.
func TestPostedAsCloseEnds(t *testing.T) {
	t.Parallel()
	all := open(t, 3, "shm")
	_, keys := share(t, all, 64)
	es, e, p := all[:2], all[0], all[0].Peer(1)
	require.NoError(t, all[2].Close())
	testutil.Eventually(t, testutil.Limit, func() bool { return StateOf(e.Peer(2)).State == PeerGone }, "rank 2 has left")
	together(t, es, func(ctx context.Context, e *Engine) error { // there are channels then
		other := e.Peer(1 - e.Rank())
		got := other.Recv(make([]byte, 3))
		return errors.Join(other.Send([]byte("one")).Wait(ctx), WaitAll(ctx, got.Request))
	})
	require.NoError(t, e.Close())
	for _, c := range []struct {
		name string
		post func() Request
	}{
		{"put", func() Request { return p.PutBytes(keys[1].At(0), []byte("8 bytes.")) }},
		{"accumulate", func() Request { return Accumulate(p, keys[1].At(0), Sum, []uint64{1}) }},
		{"send", func() Request { return p.Send([]byte("one")) }},
		{"receive", func() Request { return p.Recv(make([]byte, 3)).Request }},
		{"receive from any rank", func() Request { return e.Recv(make([]byte, 3)).Request }},
		{"receive from a rank that had left", func() Request { return e.Peer(2).Recv(make([]byte, 3)).Request }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var calls []error
			e.closed.Store(false) // as when it was looked at
			r := c.post()
			e.closed.Store(true)
			r.Then(func(err error) { calls = append(calls, err) })
			require.Len(t, calls, 1)
			require.ErrorIs(t, calls[0], ErrClosed)
		})
	}
}

// Whichever resource an engine lacks, when it is opened or at first use, Close releases all
// others, and waiting operations fail.
func TestCloseAfterAShortage(t *testing.T) {
	use := func(es []*Engine) error {
		ctx := testutil.Context(t, testutil.Limit)
		mem, err := es[0].Alloc(4096)
		if err != nil {
			return err
		}
		key := mem.Key()
		send, recv := es[0].Peer(1).Send([]byte("hello")), es[1].Peer(0).Recv(make([]byte, 8))
		if err = send.Wait(ctx); err == nil {
			_, err = recv.Wait(ctx)
		}
		return errors.Join(err, es[0].Peer(0).Put(key.At(0), mem.Slice(64, 8)).Wait(ctx),
			Accumulate(es[1].Peer(0), key.At(128), Sum, []uint64{1}).Wait(ctx), mem.Close())
	}
	atOpen := 0
	for at := int64(1); ; at++ {
		short := &shortage{}
		short.at.Store(at)
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			devices := []string{device(t, "simshort", short.link), "sim"}
			testutil.NoLeaks(t)
			config := rendezvous(t, 2, "")
			es := make([]*Engine, 2)
			var g errgroup.Group
			for r, device := range devices {
				g.Go(func() (err error) {
					c := config(r)
					c.Device, c.Sampling, c.HangTimeout = device, "off", time.Minute
					c.Logger = slog.New(slog.DiscardHandler)
					es[r], err = Open(context.Background(), c)
					return err
				})
			}
			err := g.Wait()
			if err == nil {
				err = use(es)
			} else {
				atOpen++
			}
			for _, e := range es {
				if e != nil {
					require.NoError(t, e.Close())
				}
			}
			require.Equal(t, short.calls.Load() >= at, err != nil, "%v", err)
		})
		if t.Failed() || short.calls.Load() < at {
			t.Logf("%d calls, %d of them in Open", short.calls.Load(), atOpen)
			return
		}
	}
}

// A handler is closed while Close of the engine ends all handlers.
func TestHandlerCloseBesideClose(t *testing.T) {
	t.Parallel()
	e := open(t, 1, "shm")[0]
	entered, leave := make(chan struct{}), make(chan struct{})
	first, err := e.HandleWith(HandlerOptions{Tag: 1, Workers: 1}, func(Envelope, [][]byte) {
		close(entered)
		<-leave
	})
	require.NoError(t, err)
	second, err := e.HandleWith(HandlerOptions{Tag: 2, Workers: 1}, func(Envelope, [][]byte) {})
	require.NoError(t, err)
	e.Peer(0).SendTag(1, nil).Forget()
	<-entered
	closed := make(chan error, 1)
	go func() { closed <- e.Close() }()
	<-first.quit
	second.Close()
	close(leave)
	require.NoError(t, <-closed)
}

// Close ends what workers of handlers wait for.
func TestCloseEndsWaitsOfWorkers(t *testing.T) {
	for what, wait := range map[string]func(context.Context, *Engine) error{
		"event":   func(ctx context.Context, e *Engine) error { return e.NewEvent().Wait(ctx) },
		"barrier": func(ctx context.Context, e *Engine) error { return e.Barrier(ctx) },
		"window":  func(ctx context.Context, e *Engine) error { _, err := e.Window(ctx, 8); return err },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			e := open(t, 2, "shm")[1]
			ctx := testutil.Context(t, testutil.Limit)
			entered, got := make(chan struct{}), make(chan error, 1)
			_, err := e.HandleWith(HandlerOptions{Workers: 1}, func(Envelope, [][]byte) {
				close(entered)
				got <- wait(ctx, e)
			})
			require.NoError(t, err)
			e.Peer(1).Send(nil).Forget()
			<-entered
			require.NoError(t, e.Close())
			require.ErrorIs(t, <-got, ErrClosed)
		})
	}
}

// Once connected, Unaided reports whether the link accesses the peer's memory without its
// process.
func TestUnaided(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, link string) {
		es := open(t, 2, link)
		require.False(t, es[0].Peer(1).Unaided())
		for _, p := range []*Peer{es[0].Peer(1), es[0].Peer(0)} {
			ep, err := p.conn.Endpoint(testutil.Context(t, testutil.Limit))
			require.NoError(t, err)
			alone := link == "ibv"
			if n, ok := ep.(interface{ Near() fabric.Vicinity }); ok {
				alone = n.Near().Reason == "" // process_vm calls are not refused here
			}
			require.Equal(t, alone || p.own, p.Unaided())
		}
	})
}

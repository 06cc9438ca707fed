package pingpong

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/linktest"
	"github.com/seed33544411/rma/fabric/shm"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/fabric/tcp"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// links open two links of one kind.
var links = map[string]func() (a, b fabric.Link, err error){
	"shm": func() (fabric.Link, fabric.Link, error) {
		return two(func() (fabric.Link, error) { return shm.Open(shm.Options{}) })
	},
	"tcp": func() (fabric.Link, fabric.Link, error) {
		return two(func() (fabric.Link, error) { return tcp.Open(nil) })
	},
	"sim": func() (fabric.Link, fabric.Link, error) {
		n := sim.NewNetwork(sim.Options{})
		return two(func() (fabric.Link, error) { return n.NewLink() })
	},
}

func two(open func() (fabric.Link, error)) (a, b fabric.Link, err error) {
	if a, err = open(); err == nil {
		b, err = open()
	}
	return a, b, err
}

// pair connects two sides; a is the first.
func pair(t *testing.T, link string, o Options) (a, b *Side) {
	t.Helper()
	return pairOver(t, link, o, func(ep fabric.Endpoint) fabric.Endpoint { return ep })
}

// pairOver is pair over endpoints that are wrapped.
func pairOver(t *testing.T, link string, o Options, wrap func(fabric.Endpoint) fabric.Endpoint) (a, b *Side) {
	t.Helper()
	la, lb, err := links[link]()
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, la.Close())
		require.NoError(t, lb.Close())
	})
	ea, eb := linktest.Join(t, la, lb, fabric.EndpointOptions{ID: 7})
	if o.Stall == 0 {
		o.Stall = 30 * time.Second
	}
	o.Channel = message.Options{IDTag: 3}
	o.First = true
	a, err = Open(t.Context(), la, wrap(ea), o)
	require.NoError(t, err)
	o.First = false
	b, err = Open(t.Context(), lb, wrap(eb), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	})
	require.NoError(t, a.Connect(b.Setup()))
	require.NoError(t, b.Connect(a.Setup()))
	return a, b
}

// together runs f on both sides at once. A side that has finished continues to poll until
// the other has, too.
func together(t *testing.T, a, b *Side, f func(context.Context, *Side) error) {
	t.Helper()
	over := make(chan struct{})
	end := sync.OnceFunc(func() { close(over) }) // both may fail
	var left atomic.Int32
	left.Store(2)
	run := func(s *Side) func(context.Context) error {
		return func(ctx context.Context) error {
			err := f(ctx, s)
			if left.Add(-1) == 0 || err != nil {
				end()
			}
			_, e := s.Exchange(ctx, func(context.Context) ([]byte, error) { <-over; return nil, nil })
			return errors.Join(err, e)
		}
	}
	both(t, run(a), run(b))
}

// both runs two functions at once.
func both(t *testing.T, f, g func(context.Context) error) {
	t.Helper()
	var e errgroup.Group
	ctx := testutil.Context(t, 60*time.Second)
	e.Go(func() error { return f(ctx) })
	e.Go(func() error { return g(ctx) })
	require.NoError(t, e.Wait())
}

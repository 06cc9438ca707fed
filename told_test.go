package rma

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/bringup"
	"github.com/seed33544411/rma/internal/testutil"
)

// told counts the requests to ranks above 1 over toldLinks.
var told atomic.Int64

// toldLink is a link whose writes wake nobody.
type toldLink struct{ fabric.Link }

func (l toldLink) NewEndpoint(o fabric.EndpointOptions) (fabric.Endpoint, error) {
	ep, err := l.Link.NewEndpoint(o)
	if bringup.Rank(o.ID) > 1 {
		ep = toldEndpoint{ep}
	}
	return ep, err
}

type toldEndpoint struct{ fabric.Endpoint }

func (e toldEndpoint) Post(wrs []fabric.WR) (int, error) {
	n, err := e.Endpoint.Post(wrs)
	told.Add(int64(n))
	return n, err
}

// Ranks that sleep between two messages do not tell all others each time, which would wake them, and
// are woken by those nevertheless.
func TestSilentPeersHearNothingOfSleep(t *testing.T) {
	const ranks, turns = 4, 300
	net := sim.NewNetwork(sim.Options{Seed: 3, Caps: sim.CapsLike("ibv")})
	name := device(t, "simtold", func() (fabric.Link, error) { l, err := net.NewLink(); return toldLink{l}, err })
	es := openWith(t, ranks, "", func(c *Config) { c.Device, c.Spin, c.Yields = name, -1, -1 })
	ctx := testutil.Context(t, testutil.Limit)
	for a := range ranks {
		for b := range a {
			meet(t, es[a], es[b])
		}
	}
	var last []RecvRequest
	for r := range 2 {
		for from := 2; from < ranks; from++ { // so that the rank polls for it, and sleeps on it
			last = append(last, es[r].Peer(from).RecvTag(9, make([]byte, 8)))
		}
	}
	var g errgroup.Group
	before := told.Load()
	for r := range 2 {
		g.Go(func() error {
			p, buf := es[r].Peer(1-r), make([]byte, 8)
			for i := range turns {
				var err error
				if i%2 == r {
					err = p.Send(buf).Wait(ctx)
				} else {
					_, err = p.Recv(buf).Wait(ctx)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	require.Less(t, told.Load()-before, int64(turns/2))
	for from := 2; from < ranks; from++ {
		for r := range 2 {
			require.NoError(t, es[from].Peer(r).SendTag(9, make([]byte, 8)).Wait(ctx))
		}
	}
	for _, q := range last {
		_, err := q.Wait(ctx)
		require.NoError(t, err)
	}
}

// Package linktest opens pairs of links for tests of what runs over links: two of
// a simulated network, or two of a real kind. The conformance suite of the links
// themselves is fabric/fabrictest.
//
// It is for the tests of this module only, and imports fabric/sim, fabric/shm and fabric/tcp.
package linktest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/shm"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/fabric/tcp"
	"github.com/seed33544411/rma/internal/testutil"
)

// Opener opens two links that reach each other. They are closed, and the closing
// checked, when the test ends.
type Opener func(tb testing.TB) (a, b fabric.Link)

// Two opens two links with open.
func Two(open func() (fabric.Link, error)) Opener {
	return func(tb testing.TB) (fabric.Link, fabric.Link) {
		a, err := open()
		require.NoError(tb, err)
		b, err := open()
		require.NoError(tb, err)
		tb.Cleanup(func() {
			require.NoError(tb, a.Close())
			require.NoError(tb, b.Close())
		})
		return a, b
	}
}

// Sim opens two links of a network of their own, made again each time.
func Sim(o sim.Options) Opener {
	return func(tb testing.TB) (fabric.Link, fabric.Link) {
		n := sim.NewNetwork(o)
		return Two(func() (fabric.Link, error) { return n.NewLink() })(tb)
	}
}

// Real returns the links that need no device, by name.
func Real() map[string]Opener {
	return map[string]Opener{
		"shm":           Two(func() (fabric.Link, error) { return shm.Open(shm.Options{}) }),
		"shm by bounce": Two(func() (fabric.Link, error) { return shm.Open(shm.Options{DisableSegments: true, DisableCMA: true}) }),
		"tcp":           Two(func() (fabric.Link, error) { return tcp.Open(nil) }),
	}
}

// Join connects two new endpoints on links a and b. Without a PeerTimeout in o they give a
// peer as much time as tests have, because a busy machine may keep one from polling. RDMA
// devices answer for a process that does not poll, and every lost packet may cost a seventh
// of PeerTimeout: there it is short enough to lose some, and long enough for the kernel of
// an emulated machine.
func Join(tb testing.TB, a, b fabric.Link, o fabric.EndpointOptions) (fabric.Endpoint, fabric.Endpoint) {
	if o.PeerTimeout == 0 {
		o.PeerTimeout = testutil.Limit
		if a.Name() == "ibv" {
			o.PeerTimeout = 20 * time.Second
		}
	}
	ea, err := a.NewEndpoint(o)
	require.NoError(tb, err)
	eb, err := b.NewEndpoint(o)
	require.NoError(tb, err)
	ctx := testutil.Context(tb, testutil.Limit)
	done := make(chan error, 1)
	aa, ab := ea.Address(), eb.Address()
	go func() { done <- ea.Connect(ctx, ab) }()
	require.NoError(tb, eb.Connect(ctx, aa))
	require.NoError(tb, <-done)
	return ea, eb
}

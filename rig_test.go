package rma

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/testutil"
)

// simulations are the kinds of simulated networks.
var simulations = map[string]sim.Options{
	"sim": {Seed: 1, TargetFails: true},
	// A link with the minimal guarantees: writes do not wake and appear in pieces,
	// completions are late, queues refuse requests.
	"simhard": {
		Seed: 2, Caps: hardCaps(), MaxDelay: 3, MaxCompletionDelay: 3, QueueFull: 0.2, Pieces: 4, Overtake: 0.3, TargetFails: true,
	},
}

// shared is the network of the device "sim", for tests that open links of it themselves. Jobs have networks of
// their own (network): a poll advances a whole network, with its lock held.
var shared = sim.NewNetwork(simulations["sim"])

func hardCaps() fabric.Caps {
	c := sim.CapsLike("ibv")
	c.MaxSGE, c.LastByteLast, c.MaxMessage, c.MaxInline = 3, false, 1<<16, 0
	return c
}

func init() {
	devices.Store("sim", func() (fabric.Link, error) { return shared.NewLink() })
	links.Simulate(func(o links.Options) (fabric.Link, error) {
		open, is := devices.Load(o.Device)
		if !is {
			return nil, fmt.Errorf("no device %q", o.Device)
		}
		return open.(func() (fabric.Link, error))()
	})
}

// devices are the devices of tests that run, by Config.Device.
var (
	devices      sync.Map // func() (fabric.Link, error)
	deviceNumber atomic.Int64
)

// device makes a device for the time of a test, and returns its Config.Device, which begins with kind.
func device(t testing.TB, kind string, open func() (fabric.Link, error)) string {
	name := fmt.Sprint(kind, deviceNumber.Add(1))
	devices.Store(name, open)
	t.Cleanup(func() { devices.Delete(name) })
	return name
}

// network makes a simulated network of that kind for the time of a test, and returns its Config.Device.
func network(t testing.TB, kind string) string {
	n := sim.NewNetwork(simulations[kind])
	return device(t, kind, func() (fabric.Link, error) { return n.NewLink() })
}

// shortage makes one of the calls fail that allocate resources of a simulated link.
type shortage struct {
	calls atomic.Int64
	at    atomic.Int64 // which
}

func (s *shortage) link() (fabric.Link, error) {
	if err := s.take(); err != nil {
		return nil, err
	}
	l, err := shared.NewLink()
	return &shortLink{l, s}, err
}

func (s *shortage) take() error {
	if s.calls.Add(1) == s.at.Load() {
		return fmt.Errorf("the test's %w", fabric.ErrResources)
	}
	return nil
}

// shortLink is a link under a shortage.
type shortLink struct {
	fabric.Link
	s *shortage
}

func (l *shortLink) NewEndpoint(o fabric.EndpointOptions) (fabric.Endpoint, error) {
	if err := l.s.take(); err != nil {
		return nil, err
	}
	return l.Link.NewEndpoint(o)
}

func (l *shortLink) Register(mem []byte, access fabric.Access) (fabric.Region, error) {
	if err := l.s.take(); err != nil {
		return nil, err
	}
	return l.Link.Register(mem, access)
}

func (l *shortLink) Alloc(size int, access fabric.Access) (fabric.Region, error) {
	if err := l.s.take(); err != nil {
		return nil, err
	}
	return l.Link.Alloc(size, access)
}

// simulate opens the engines of a job over a network of that kind.
func simulate(t testing.TB, n int, kind string) []*Engine {
	t.Helper()
	return simulateWith(t, n, kind, func(*Config) {})
}

// simulateWith is simulate with a changed configuration.
func simulateWith(t testing.TB, n int, kind string, change func(*Config)) []*Engine {
	t.Helper()
	net := network(t, kind)
	return openWith(t, n, "", func(c *Config) { c.Device = net; change(c) })
}

// onAll runs f over every link, two simulated ones included, with n ranks.
func onAll(t *testing.T, n int, f func(t *testing.T, es []*Engine)) {
	for kind := range simulations {
		t.Run(kind, func(t *testing.T) { t.Parallel(); f(t, simulate(t, n, kind)) })
	}
	onEach(t, func(t *testing.T, fabric string) { f(t, open(t, n, fabric)) })
}

// onAllPieces is onAll with every way of puts and gets of several pieces forced.
func onAllPieces(t *testing.T, n int, f func(t *testing.T, es []*Engine)) {
	onNetworks(t, n, slices.Collect(maps.Keys(simulations)), f)
}

// onNetworks is onAllPieces with some kinds of simulated networks.
func onNetworks(t *testing.T, n int, kinds []string, f func(t *testing.T, es []*Engine)) {
	for _, way := range []Pieces{PiecesChain, PiecesGroup} {
		t.Run(string(way), func(t *testing.T) {
			for _, kind := range kinds {
				t.Run(kind, func(t *testing.T) {
					t.Parallel()
					f(t, simulateWith(t, n, kind, func(c *Config) { c.Pieces = way }))
				})
			}
			onEach(t, func(t *testing.T, fabric string) {
				f(t, openWith(t, n, fabric, func(c *Config) { c.Pieces = way }))
			})
		})
	}
}

// together runs f for every rank at once.
func together(t testing.TB, es []*Engine, f func(ctx context.Context, e *Engine) error) {
	t.Helper()
	var g errgroup.Group
	ctx := testutil.Context(t, testutil.Limit)
	for _, e := range es {
		g.Go(func() error { return f(ctx, e) })
	}
	require.NoError(t, g.Wait())
}

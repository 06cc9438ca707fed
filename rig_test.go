package rma

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/testutil"
)

// networks are the simulated networks, by Config.Device.
var networks = map[string]*sim.Network{
	"sim": sim.NewNetwork(sim.Options{Seed: 1, TargetFails: true}),
	// A link with the minimal guarantees: writes do not wake and appear in pieces,
	// completions are late, queues refuse requests.
	"simhard": sim.NewNetwork(sim.Options{
		Seed: 2, Caps: hardCaps(), MaxDelay: 3, MaxCompletionDelay: 3, QueueFull: 0.2, Pieces: 4, Overtake: 0.3, TargetFails: true,
	}),
}

func hardCaps() fabric.Caps {
	c := sim.CapsLike("ibv")
	c.MaxSGE, c.LastByteLast, c.MaxMessage, c.MaxInline = 3, false, 1<<16, 0
	return c
}

func init() {
	links.Simulate(func(o links.Options) (fabric.Link, error) {
		if shortages[o.Device] != nil {
			return shortages[o.Device].link()
		}
		switch o.Device {
		case farDevice:
			return newFarLink()
		case toldDevice:
			return newToldLink()
		}
		if open := openers[o.Device]; open != nil {
			return open()
		}
		if c, is := cables.Load(o.Device); is {
			return c.(*cable).open()
		}
		return networks[o.Device].NewLink()
	})
}

// openers open links of devices that some systems have.
var openers = map[string]func() (fabric.Link, error){}

// shortages are the shortages created by tests, by Config.Device.
var shortages = map[string]*shortage{}

// shortage makes one of the calls fail that allocate resources of a simulated link.
type shortage struct {
	calls atomic.Int64
	at    atomic.Int64 // which
}

func (s *shortage) link() (fabric.Link, error) {
	if err := s.take(); err != nil {
		return nil, err
	}
	l, err := networks["sim"].NewLink()
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

// simulate opens the engines of a job over that network.
func simulate(t testing.TB, n int, device string) []*Engine {
	t.Helper()
	return openWith(t, n, "", func(c *Config) { c.Device = device })
}

// onAll runs f over every link, two simulated ones included, with n ranks.
func onAll(t *testing.T, n int, f func(t *testing.T, es []*Engine)) {
	for device := range networks {
		t.Run(device, func(t *testing.T) { t.Parallel(); f(t, simulate(t, n, device)) })
	}
	onEach(t, func(t *testing.T, fabric string) { f(t, open(t, n, fabric)) })
}

// onAllPieces is onAll with every way of puts and gets of several pieces forced.
func onAllPieces(t *testing.T, n int, f func(t *testing.T, es []*Engine)) {
	onNetworks(t, n, slices.Collect(maps.Keys(networks)), f)
}

// onNetworks is onAllPieces with some of the simulated networks.
func onNetworks(t *testing.T, n int, devices []string, f func(t *testing.T, es []*Engine)) {
	for _, way := range []Pieces{PiecesChain, PiecesGroup} {
		t.Run(string(way), func(t *testing.T) {
			for _, device := range devices {
				t.Run(device, func(t *testing.T) {
					t.Parallel()
					f(t, openWith(t, n, "", func(c *Config) { c.Device, c.Pieces = device, way }))
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

package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/event"
)

// Network joins links. Its methods may be called from any goroutine.
type Network struct {
	opt   Options
	id    uint64
	start time.Time

	mu     sync.Mutex
	rng    *rand.Rand
	steps  uint64
	serial uint64
	links  []*Link
	byAddr map[addrKey]*Endpoint // endpoints not closed
	active []*Endpoint           // those with requests not retired
	joined *sync.Cond            // an endpoint connected or closed
}

var networks atomic.Uint64

// NewNetwork returns a network without links. It needs no closing.
func NewNetwork(o Options) *Network {
	if o.Caps == (fabric.Caps{}) {
		o.Caps = CapsLike("sim")
	}
	o.Caps.ConnectsAlone = !o.ConnectWaits
	o.Pieces = min(o.Pieces, maxPieces)
	n := &Network{
		opt: o, id: networks.Add(1), start: time.Now(),
		rng:    rand.New(rand.NewPCG(o.Seed, 0x5eed)),
		byAddr: map[addrKey]*Endpoint{},
	}
	n.joined = sync.NewCond(&n.mu)
	return n
}

// NewLink opens a link to the network.
func (n *Network) NewLink() (*Link, error) {
	wake, err := event.New()
	if err != nil {
		if errors.Is(err, errors.ErrUnsupported) {
			err = errors.Join(fabric.ErrNotSupported, err)
		}
		return nil, fmt.Errorf("sim: event of the link: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &Link{net: n, wake: wake}
	n.links = append(n.links, l)
	return l, nil
}

// Step advances the network by k steps, like k polls.
func (n *Network) Step(k int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for range k {
		n.tick()
		for _, l := range n.links {
			n.drive(l)
		}
	}
}

// Steps returns the number of steps so far.
func (n *Network) Steps() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.steps
}

// now returns the network's time.
func (n *Network) now() time.Duration {
	if n.opt.StepTime > 0 {
		return time.Duration(n.steps) * n.opt.StepTime
	}
	return time.Since(n.start)
}

func (n *Network) tick() {
	n.steps++
	for _, l := range n.links {
		if l.killAt != 0 && n.steps >= l.killAt {
			l.kill()
		}
	}
}

// drive advances the endpoints that a poll of l advances.
func (n *Network) drive(l *Link) {
	kept := n.active[:0]
	for _, ep := range n.active {
		if !n.opt.Caps.TargetProgress || ep.peer.link == l {
			ep.advance()
		}
		ep.expire()
		ep.retire()
		if ep.head != ep.tail {
			kept = append(kept, ep)
		} else {
			ep.active = false
		}
	}
	clear(n.active[len(kept):])
	n.active = kept
}

// chance returns true with probability p.
func (n *Network) chance(p float64) bool { return p > 0 && n.rng.Float64() < p }

// upTo returns a random number in 0..k.
func (n *Network) upTo(k int) uint64 {
	if k <= 0 {
		return 0
	}
	return n.rng.Uint64N(uint64(k) + 1)
}

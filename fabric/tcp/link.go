//go:build linux || darwin || freebsd

package tcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/event"
)

// Limits of the link, as Caps reports them.
const (
	// maxSGE is nominal: lists of any length are sent as one frame.
	maxSGE = 32

	// maxInline is small enough that the memory for it, once per work request, is cheap,
	// and large enough for every control message of the protocols.
	maxInline = 256

	// maxReads is enough for a 10 Gbit/s × 1 ms path with 10 KiB reads, and costs the
	// target 24 bytes per read.
	maxReads = 128
)

// directMax is the number of endpoints up to which Poll reads every socket itself. A
// receive that finds nothing costs about as much as a call of epoll, which needs the
// receive as well if there is data: reading directly is faster for one or two sockets and
// slower from about three.
const directMax = 2

var linkCaps = fabric.Caps{
	MaxSGE:         maxSGE,
	MaxInline:      maxInline,
	MaxMessage:     maxMessage,
	MaxReads:       maxReads,
	LastByteLast:   true,
	WakesOnWrite:   true,
	AtomicCPU:      true,
	TargetProgress: true,
}

// link implements fabric.Link. The first group of fields belongs to the owner; fields that
// other goroutines access are below mu or atomic.
type link struct {
	memory
	shared

	active   []*endpoint // endpoints with an open socket
	tab      []*endpoint // the same by index in the poller; nil if free
	gen      uint32      // distinguishes the users of a table entry
	direct   int         // directMax, except in tests
	deferred []*endpoint // endpoints with work for the next Poll or before sleeping
	spare    []*endpoint // the other buffer of deferred
	ready    readyList
	received int // receives since all sockets were watched, see unwatch

	last   *endpoint // the endpoint that received last
	streak uint32    // consecutive receives of last
	polls  uint32    // calls of Poll

	waking event.Event
	cfg    Config
	port   uint16

	fresh    atomic.Int32          // endpoints in joined
	noAccept atomic.Pointer[error] // why no connection can be accepted now
	closed   atomic.Bool

	mu      sync.Mutex
	joined  []*endpoint // connected, not yet adopted by the owner
	all     map[*endpoint]struct{}
	byNonce map[uint64]*endpoint
	regions map[*region]struct{}

	ln      net.Listener
	pending strangers
	nobody  token         // token for endpoints that do not exist
	met     chan struct{} // has room for one: an endpoint was connected
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

// Open opens a link, which listens at once. cfg may be nil. The link has two goroutines,
// one that accepts connections and one that checks for silent hosts; Close ends them.
func Open(cfg *Config) (fabric.Link, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if c.Congestion, err = c.Congestion.check(); err != nil {
		return nil, fmt.Errorf("tcp: open: %w", fabric.Shortage(err))
	}
	l := &link{
		cfg:     c,
		met:     make(chan struct{}, 1),
		direct:  directMax,
		all:     map[*endpoint]struct{}{},
		byNonce: map[uint64]*endpoint{},
		regions: map[*region]struct{}{},
	}
	_, _ = rand.Read(l.nobody[:]) // never fails
	if l.waking, err = event.New(); err != nil {
		return nil, fmt.Errorf("tcp: open: %w", fabric.Shortage(err))
	}
	if err := l.poller.open(l.waking.FD()); err != nil {
		_ = l.waking.Close()
		return nil, fmt.Errorf("tcp: open: %w", fabric.Shortage(err))
	}
	if err := l.listen(); err != nil {
		l.closeFDs()
		return nil, err
	}
	return l, nil
}

func (l *link) closeFDs() {
	_ = l.poller.close()
	_ = l.waking.Close()
}

func (l *link) Name() string      { return "tcp" }
func (l *link) Caps() fabric.Caps { return linkCaps }
func (l *link) FD() int           { return l.poller.fd }

// wake makes FD readable, for events without a socket.
func (l *link) wake() { l.waking.Set() }

// adopt adds newly connected endpoints to the owner's lists.
// Setup path.
func (l *link) adopt() {
	l.waking.Clear()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.joined {
		if e.adopted || !e.sock.open() {
			continue
		}
		idx := -1
		for i, o := range l.tab {
			if o == nil {
				idx = i
				break
			}
		}
		if idx < 0 {
			idx = len(l.tab)
			l.tab = append(l.tab, nil)
		}
		l.gen++
		e.adopted = true
		e.sit(seat{idx, l.gen})
		l.tab[idx] = e
		l.active = append(l.active, e)
		e.mustWatch(watchIn)
	}
	l.joined = l.joined[:0]
	l.fresh.Store(0)
	if n := len(l.active); cap(l.deferred) < n {
		l.deferred = append(make([]*endpoint, 0, 2*n), l.deferred...)
		l.spare = make([]*endpoint, 0, 2*n)
	}
	l.received, l.streak = 0, 0
	if len(l.active) > l.direct { // from now on epoll must watch for all events that they wait for
		for i := len(l.active) - 1; i >= 0; i-- {
			if i < len(l.active) {
				l.active[i].deferRest()
			}
		}
	}
}

// forget removes e, whose socket is being closed, from the owner's lists.
func (l *link) forget(e *endpoint) {
	if !e.adopted {
		return
	}
	l.tab[e.sock.seat.idx] = nil
	if l.last == e {
		l.last, l.streak = nil, 0
	}
	for i, o := range l.active {
		if o == e {
			last := len(l.active) - 1
			l.active[i] = l.active[last]
			l.active[last] = nil
			l.active = l.active[:last]
			break
		}
	}
}

func (l *link) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	l.stop()
	_ = l.ln.Close()
	l.pending.closeAll()
	l.mu.Lock()
	eps := make([]*endpoint, 0, len(l.all))
	for e := range l.all {
		eps = append(eps, e)
	}
	l.mu.Unlock()
	for _, e := range eps {
		_ = e.Close()
		e.hangUp()
		e.release()
	}
	l.wg.Wait()
	l.mu.Lock()
	open := make([]*region, 0, len(l.regions))
	for r := range l.regions {
		open = append(open, r)
	}
	l.mu.Unlock()
	var errs []error
	if len(open) > 0 {
		errs = append(errs, fmt.Errorf("tcp: close: %w: %d", fabric.ErrRegionsOpen, len(open)))
	}
	for _, r := range open {
		errs = append(errs, r.Close())
	}
	l.ready = readyList{}
	l.closeFDs()
	return errors.Join(errs...)
}

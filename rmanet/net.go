package rmanet

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/seed33544411/rma"
)

// Net holds the connections and listeners of an engine. There is one for each engine; it is
// created by the first Listen, Dial or Configure, and ends with the engine.
type Net struct {
	eng      *rma.Engine
	cfg      Config
	sessions []*session // by rank
	slabs    *slabs
	recv     atomic.Pointer[rma.Receiving]
	start    sync.Once
	startErr error

	draining sync.Mutex // one Drain at a time
	drained  *rma.Event // set when wait has to check again; only while drains is true
	drains   atomic.Bool

	mu        sync.Mutex
	listeners map[string]*Listener
	requests  uint64 // of peers, so far
	err       error  // the engine is closed
}

var (
	netsMu sync.Mutex
	nets   = map[*rma.Engine]*Net{}
)

// Configure sets the options of an engine's connections. It must come before the
// first Listen or Dial, and before peers dial.
func Configure(eng *rma.Engine, cfg Config) (*Net, error) {
	cfg, err := cfg.effective()
	if err != nil {
		return nil, err
	}
	netsMu.Lock()
	defer netsMu.Unlock()
	if nets[eng] != nil {
		return nil, errors.New("rmanet: the engine's connections are configured already")
	}
	return newNet(eng, cfg), nil
}

// Of returns the connections of an engine.
func Of(eng *rma.Engine) *Net {
	netsMu.Lock()
	defer netsMu.Unlock()
	if n := nets[eng]; n != nil {
		return n
	}
	cfg, _ := Config{}.effective() // the defaults are valid
	return newNet(eng, cfg)
}

// newNet creates the engine's Net. The caller holds netsMu.
func newNet(eng *rma.Engine, cfg Config) *Net {
	n := &Net{eng: eng, cfg: cfg, listeners: map[string]*Listener{}, slabs: newSlabs(eng), drained: eng.NewEvent()}
	for r := range eng.Size() {
		n.sessions = append(n.sessions, newSession(n, r))
	}
	if eng.BeforeClose(n.close) {
		nets[eng] = n
	} else {
		n.start.Do(func() { n.startErr = net.ErrClosed })
	}
	return n
}

// run begins to receive from peers, once: not before the first listener or connection
// exists.
func (n *Net) run() error {
	n.start.Do(func() {
		r, err := n.eng.Receive(tagData, tagIgnore, &end{n})
		if n.startErr = err; err != nil {
			n.gone(err)
			return
		}
		n.recv.Store(r)
		r.Resume() // messages left before r was stored
	})
	return n.startErr
}

// close ends all connections as the exit of a process ends its sockets: written data is
// still delivered, for at most Config.Linger.
func (n *Net) close() {
	n.shut()
	if n.recv.Load() != nil {
		for _, s := range n.sessions {
			for _, c := range s.all() {
				_ = c.Close()
			}
		}
		if n.cfg.Linger > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), n.cfg.Linger)
			defer cancel()
			_ = n.wait(ctx, (*session).quiet) // undelivered data is lost with the engine
		}
	}
	n.gone(rma.ErrClosed)
	n.slabs.close()
}

// shut closes all listeners.
func (n *Net) shut() {
	n.mu.Lock()
	n.err = net.ErrClosed
	ls := slices.Collect(maps.Values(n.listeners))
	n.mu.Unlock()
	for _, l := range ls {
		l.shut()
	}
}

// gone ends all connections and listeners: the engine is closed.
func (n *Net) gone(err error) {
	n.shut()
	netsMu.Lock()
	delete(nets, n.eng)
	netsMu.Unlock()
	for _, s := range n.sessions {
		s.fail(err)
	}
}

// Dial connects to a service of a rank of the job, this one included, named
// "rank1.rma:8080" or "1:8080". It returns when the peer's side has accepted. A service
// without a listener gives syscall.ECONNREFUSED. While the program of the rank has not used
// this package yet, or the listener has more connections than its backlog holds, Dial waits
// until ctx ends. The error then is context.DeadlineExceeded and os.ErrDeadlineExceeded, or
// context.Canceled. It is syscall.ENOBUFS if the peer has too many connections: the listener's side has no
// room for more to wait, or the peer does not end those that are closed here.
func Dial(ctx context.Context, eng *rma.Engine, address string) (net.Conn, error) {
	return Of(eng).Dial(ctx, address)
}

// Dial is the function Dial for this engine.
func (n *Net) Dial(ctx context.Context, address string) (net.Conn, error) {
	to, err := ParseAddr(address)
	if err == nil && to.Rank >= n.eng.Size() {
		err = &net.AddrError{Err: "the job has ranks 0 to " + strconv.Itoa(n.eng.Size()-1), Addr: address}
	}
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: Network, Err: err}
	}
	c, err := n.dial(ctx, to)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: Network, Addr: to, Err: err}
	}
	return c, nil
}

func (n *Net) dial(ctx context.Context, to Addr) (*Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, dialError(err)
	}
	if err := n.run(); err != nil {
		return nil, net.ErrClosed
	}
	c, err := n.sessions[to.Rank].open(to.Service)
	if err != nil {
		if errors.Is(err, rma.ErrClosed) || errors.Is(err, net.ErrClosed) {
			return nil, net.ErrClosed
		}
		if errors.Is(err, syscall.ENOBUFS) {
			return nil, err
		}
		return nil, connReset(err)
	}
	for {
		c.wr.ev.Reset()
		c.mu.Lock()
		st, why := c.state, c.wr.err
		c.mu.Unlock()
		err := ctx.Err()
		switch {
		case st == refused:
			return nil, why
		case err != nil:
			_ = c.Abort()
			return nil, dialError(err)
		case st == established:
			return c, nil
		}
		if err := c.wr.ev.Wait(ctx); errors.Is(err, rma.ErrClosed) {
			n.gone(err)
		}
	}
}

// dialError translates the end of a context as package net does.
func dialError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return dialTimeout{}
	}
	return err
}

// dialTimeout is the error of a Dial whose deadline has passed.
type dialTimeout struct{}

func (dialTimeout) Error() string   { return "i/o timeout" }
func (dialTimeout) Timeout() bool   { return true }
func (dialTimeout) Temporary() bool { return true }
func (dialTimeout) Is(err error) bool {
	return err == context.DeadlineExceeded || err == os.ErrDeadlineExceeded
}

// Dialer returns a dial function for DialContext of net/http.Transport, or for gRPC's
// WithContextDialer. Host and port of the address are rank and service: http://1:8080/ and
// http://rank1.rma:8080/ are service 8080 of rank 1.
func Dialer(eng *rma.Engine) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) { return Dial(ctx, eng, address) }
}

// Drain waits until all connections have ended on both sides: all data written before they
// were closed has been read then, or dropped.
func (n *Net) Drain(ctx context.Context) error {
	if err := n.wait(ctx, (*session).empty); err != nil {
		return &net.OpError{Op: "drain", Net: Network, Err: err}
	}
	return nil
}

// wait returns when done returns true for all sessions.
func (n *Net) wait(ctx context.Context, done func(*session) bool) error {
	n.draining.Lock()
	defer n.draining.Unlock()
	n.drains.Store(true)
	defer n.drains.Store(false)
	for {
		n.drained.Reset()
		left := 0
		for _, s := range n.sessions {
			if !done(s) {
				left++
			}
		}
		if left == 0 {
			return nil
		}
		if err := n.drained.Wait(ctx); err != nil {
			return engineError(err)
		}
	}
}

// look makes wait check again.
func (n *Net) look() {
	if n.drains.Load() {
		n.drained.Set()
	}
}

// end is a Net as seen by the engine.
type end struct{ n *Net }

// Arriving implements rma.Receiver.
func (e *end) Arriving(m rma.Envelope, inPlace bool) rma.Landing {
	return e.n.sessions[m.From].arriving(m, inPlace)
}

// Arrived implements rma.Receiver.
func (e *end) Arrived(m rma.Envelope, token any, parts [][]byte, err error) {
	e.n.sessions[m.From].arrived(token, parts, err)
}

// Gone implements rma.Receiver.
func (e *end) Gone(rank int, err error) {
	if errors.Is(err, rma.ErrClosed) {
		e.n.gone(err)
		return
	}
	e.n.sessions[rank].lose(err)
}

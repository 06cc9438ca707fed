package rmanet

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/seed33544411/rma"
)

// Net is the connections and listeners of an engine. There is one an engine, made
// at the first Listen, Dial or Configure, and it ends with the engine.
type Net struct {
	eng      *rma.Engine
	cfg      Config
	sessions []*session // by rank
	recv     atomic.Pointer[rma.Receiving]
	start    sync.Once
	startErr error

	mu        sync.Mutex
	listeners map[string]*Listener
	err       error         // the engine is closed
	quiet     chan struct{} // closed when a session has become empty; see Drain
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

// newNet makes the engine's Net. netsMu is held.
func newNet(eng *rma.Engine, cfg Config) *Net {
	n := &Net{eng: eng, cfg: cfg, listeners: map[string]*Listener{}, quiet: make(chan struct{})}
	for r := range eng.Size() {
		n.sessions = append(n.sessions, &session{
			n: n, rank: r, peer: eng.Peer(r), opened: map[uint32]*Conn{}, accepted: map[uint32]*Conn{},
		})
	}
	nets[eng] = n
	return n
}

// run begins to listen to peers: not before what they may ask for is there.
func (n *Net) run() error {
	n.start.Do(func() {
		r, err := n.eng.Receive(tagData, tagIgnore, &end{n})
		if n.startErr = err; err != nil {
			n.gone(err)
			return
		}
		n.recv.Store(r)
		r.Resume() // what was left before r was known here
	})
	return n.startErr
}

// gone ends everything: the engine is closed.
func (n *Net) gone(err error) {
	n.mu.Lock()
	if n.err != nil {
		n.mu.Unlock()
		return
	}
	n.err = net.ErrClosed
	var ls []*Listener
	for _, l := range n.listeners {
		ls = append(ls, l)
	}
	n.mu.Unlock()
	netsMu.Lock()
	delete(nets, n.eng)
	netsMu.Unlock()
	for _, l := range ls {
		l.shut()
	}
	for _, s := range n.sessions {
		s.fail(err)
	}
}

// Dial connects to a service, "rank:service" or "rma://rank/service", of a rank of
// the job, this one included. It returns when the peer's side has accepted: a
// service that nobody listens on is syscall.ECONNREFUSED; a rank whose program has
// not used this package yet keeps Dial waiting until ctx ends.
func Dial(ctx context.Context, eng *rma.Engine, address string) (net.Conn, error) {
	return Of(eng).Dial(ctx, address)
}

// Dial is the function of that name.
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
		return nil, &net.OpError{Op: "dial", Net: Network, Source: Addr{Rank: n.eng.Rank()}, Addr: to, Err: err}
	}
	return c, nil
}

func (n *Net) dial(ctx context.Context, to Addr) (*Conn, error) {
	if err := n.run(); err != nil {
		return nil, net.ErrClosed
	}
	c, err := n.sessions[to.Rank].open(to.Service)
	if err != nil {
		if errors.Is(err, rma.ErrClosed) {
			return nil, net.ErrClosed
		}
		return nil, connReset(err)
	}
	for {
		c.wr.ev.Reset()
		c.mu.Lock()
		st, err := c.state, c.wr.err
		c.mu.Unlock()
		switch {
		case st == established:
			return c, nil
		case st == refused:
			return nil, err
		}
		if err := c.wr.ev.Wait(ctx); err != nil && ctx.Err() != nil {
			_ = c.Abort()
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, syscall.ETIMEDOUT
			}
			return nil, ctx.Err()
		} else if errors.Is(err, rma.ErrClosed) {
			n.gone(err)
		}
	}
}

// Dialer returns a function for programs that are given one: the DialContext of
// net/http.Transport, or of gRPC's WithContextDialer. Host and port of the address
// are rank and service: http://1:8080/ is service 8080 of rank 1.
func Dialer(eng *rma.Engine) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) { return Dial(ctx, eng, address) }
}

// Drain waits until all connections have ended on both sides: what was written
// before they were closed has arrived then. Call it before the engine is closed
// where that matters; closing the engine resets what is still open.
func (n *Net) Drain(ctx context.Context) error {
	for {
		n.mu.Lock()
		quiet := n.quiet
		n.mu.Unlock()
		open := 0
		for _, s := range n.sessions {
			s.mu.Lock()
			open += len(s.opened) + len(s.accepted)
			s.mu.Unlock()
		}
		if open == 0 {
			return nil
		}
		select {
		case <-quiet:
		case <-ctx.Done():
			return &net.OpError{Op: "drain", Net: Network, Err: ctx.Err()}
		}
	}
}

// idle wakes Drain: a session has no connections any more.
func (n *Net) idle() {
	n.mu.Lock()
	close(n.quiet)
	n.quiet = make(chan struct{})
	n.mu.Unlock()
}

// end is the Net as the engine sees it.
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
	if rank == e.n.eng.Rank() {
		e.n.gone(err)
		return
	}
	e.n.sessions[rank].fail(err)
}

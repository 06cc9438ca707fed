package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
)

type state uint8

const (
	idle   state = iota // not connected
	up                  // may post
	down                // failed
	closed              // by the owner
)

// Endpoint is one side of a connection. See fabric.Endpoint for the contract.
type Endpoint struct {
	link    *Link
	id      uint32
	depth   int
	timeout time.Duration
	addr    addrKey

	// Guarded by link.net.mu.
	state    state
	err      error
	peer     *Endpoint // the endpoint that this one connected to
	claimed  *Endpoint // the endpoint that connected to this one
	ops      []op      // ring, length a power of two
	head     uint64    // oldest request not retired
	exec     uint64    // oldest request not executed
	tail     uint64    // next free
	active   bool      // in net.active
	waiting  bool      // since is valid
	since    time.Duration
	ready    softlink.CompQ // of requests
	notes    softlink.CompQ // of the peer's notifications
	downSeen bool           // OpDown has been reported or will not be
	downSt   fabric.Status
	refused  fabric.Status // status of the peer's request that this endpoint refused
}

var _ fabric.Endpoint = (*Endpoint)(nil)

// NewEndpoint creates an unconnected endpoint.
func (l *Link) NewEndpoint(o fabric.EndpointOptions) (fabric.Endpoint, error) {
	if o.Depth <= 0 {
		o.Depth = fabric.DefaultDepth
	}
	if o.PeerTimeout <= 0 {
		o.PeerTimeout = fabric.DefaultPeerTimeout
	}
	ring := 1
	for ring < o.Depth {
		ring *= 2
	}
	ep := &Endpoint{link: l, id: o.ID, depth: o.Depth, timeout: o.PeerTimeout, ops: make([]op, ring)}
	caps := &l.net.opt.Caps
	sges := make([]fabric.SGE, ring*caps.MaxSGE)
	inline := make([]byte, ring*caps.MaxInline)
	for i := range ep.ops {
		ep.ops[i].sges = sges[i*caps.MaxSGE:][:0:caps.MaxSGE]
		ep.ops[i].inline = inline[i*caps.MaxInline:][:0:caps.MaxInline]
	}
	ep.ready.Reserve(o.Depth)
	ep.notes.Reserve(o.Depth)

	n := l.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.closed || l.dead {
		return nil, fmt.Errorf("new endpoint: link %w", fabric.ErrClosed)
	}
	n.serial++
	ep.addr = addrKey{n.id, n.serial}
	n.byAddr[ep.addr] = ep
	l.eps = append(l.eps, ep)
	return ep, nil
}

// Address returns the address for the peer's Connect.
func (ep *Endpoint) Address() []byte { return ep.addr.marshal() }

// Connect joins the endpoint with the peer's.
func (ep *Endpoint) Connect(ctx context.Context, peer []byte) error {
	k, err := parseAddress(peer)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	n := ep.link.net
	n.mu.Lock()
	defer n.mu.Unlock()
	to := n.byAddr[k]
	switch {
	case ep.state == closed:
		return fmt.Errorf("connect: endpoint %w", fabric.ErrClosed)
	case ep.peer != nil || ep.state != idle:
		return fmt.Errorf("connect: endpoint is connected already")
	case to == nil:
		return fmt.Errorf("connect: %w: no such endpoint in this network", fabric.ErrBadAddress)
	case to == ep:
		return fmt.Errorf("connect: %w: it is this endpoint's own", fabric.ErrBadAddress)
	case to.claimed != nil:
		return fmt.Errorf("connect: %w: used before", fabric.ErrBadAddress)
	case ep.claimed != nil && ep.claimed != to:
		return fmt.Errorf("connect: %w: another endpoint has connected to this one", fabric.ErrBadAddress)
	}
	ep.peer, to.claimed, ep.state = to, ep, up
	n.joined.Broadcast()
	if !n.opt.ConnectWaits {
		return nil
	}
	stop := context.AfterFunc(ctx, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.joined.Broadcast()
	})
	defer stop()
	for to.peer != ep && ep.state == up && ctx.Err() == nil {
		n.joined.Wait()
	}
	switch {
	case to.peer == ep && ep.state == up:
		return nil
	case ep.state != up:
		return fmt.Errorf("connect: %w", ep.err)
	default:
		ep.peer, to.claimed, ep.state = nil, nil, idle
		return fmt.Errorf("connect: the peer has not connected: %w", ctx.Err())
	}
}

// Post accepts a prefix of wrs.
func (ep *Endpoint) Post(wrs []fabric.WR) (int, error) {
	n := ep.link.net
	n.mu.Lock()
	defer n.mu.Unlock()
	switch ep.state {
	case idle:
		return 0, fabric.ErrNotConnected
	case down, closed:
		return 0, fabric.ErrDown
	}
	limit := min(len(wrs), ep.depth-int(ep.tail-ep.head)-ep.ready.Len())
	if n.chance(n.opt.QueueFull) {
		limit = int(n.upTo(limit))
	}
	caps := &n.opt.Caps
	var err error
	taken, wake := 0, caps.TargetProgress || caps.WakesOnWrite
	for ; taken < limit; taken++ {
		w := &wrs[taken]
		if why := softlink.CheckShape(w, caps); why != "" {
			err = &fabric.WRError{Index: taken, Op: w.Op, Reason: why}
			break
		}
		ep.enqueue(w)
		wake = wake || w.Flags&fabric.FlagNotify != 0
	}
	if taken == 0 {
		return 0, err
	}
	if !ep.active {
		ep.active = true
		n.active = append(n.active, ep)
	}
	if !caps.TargetProgress {
		ep.advance()
		ep.retire()
	}
	if ep.exec != ep.tail && wake {
		ep.peer.link.event() // the peer's polls advance the request
	}
	return taken, err
}

// enqueue copies w to the ring.
func (ep *Endpoint) enqueue(w *fabric.WR) {
	n := ep.link.net
	o := &ep.ops[ep.tail&uint64(len(ep.ops)-1)]
	ep.tail++
	sges, inline := append(o.sges[:0], w.Local...), o.inline[:0]
	*o = op{wr: *w, size: w.Len(), sges: sges, inline: inline, due: n.steps + n.upTo(n.opt.MaxDelay)}
	if w.Flags&fabric.FlagInline != 0 {
		o.inline = o.inline[:o.size]
		softlink.Gather(o.inline, w.Local)
	}
	o.wr.Local = o.sges
	if w.Op == fabric.OpRead && n.chance(n.opt.Overtake) {
		o.yield = 1 + n.upTo(8)
	}
	if n.chance(n.opt.ErrorRate) {
		o.inject = fabric.StatusRemoteOp
	}
	if l := ep.link; l.failIn > 0 {
		if l.failIn--; l.failIn == 0 {
			o.inject = l.failSt
		}
	}
}

// Err returns the reason why the endpoint is down.
func (ep *Endpoint) Err() error {
	ep.link.net.mu.Lock()
	defer ep.link.net.mu.Unlock()
	return ep.err
}

// Close ends the endpoint.
func (ep *Endpoint) Close() error {
	ep.link.net.mu.Lock()
	defer ep.link.net.mu.Unlock()
	ep.close()
	return nil
}

func (ep *Endpoint) close() {
	if ep.state == closed {
		return
	}
	n := ep.link.net
	ep.flush(ep.tail, fabric.StatusFlushed)
	ep.state = closed
	if ep.err == nil {
		ep.err = fmt.Errorf("endpoint %w", fabric.ErrClosed)
	}
	ep.downSeen = true
	ep.notes = softlink.CompQ{}
	delete(n.byAddr, ep.addr)
	if ep.claimed != nil {
		ep.claimed.fall(fabric.StatusPeerGone)
	}
	n.joined.Broadcast()
	ep.link.event()
}

// pending reports whether pop would return a completion.
func (ep *Endpoint) pending() bool {
	return ep.ready.Len() > 0 || ep.notes.Len() > 0 || ep.state == down && !ep.downSeen
}

// pop moves completions to cs.
func (ep *Endpoint) pop(cs []fabric.Completion) int {
	k := ep.ready.Pop(cs)
	k += ep.notes.Pop(cs[k:])
	if ep.state == down && !ep.downSeen && k < len(cs) && ep.head == ep.tail && ep.ready.Len() == 0 {
		ep.downSeen = true
		cs[k] = fabric.Completion{EP: ep.id, Op: fabric.OpDown, Status: ep.downSt}
		k++
	}
	return k
}

// An address: "simA", network id (8), endpoint serial (8), CRC-32 of these (4).
const (
	addrMagic = "simA"
	addrSize  = 4 + 8 + 8 + 4
)

type addrKey struct{ net, serial uint64 }

func (k addrKey) marshal() []byte {
	b := append(make([]byte, 0, addrSize), addrMagic...)
	b = binary.LittleEndian.AppendUint64(b, k.net)
	b = binary.LittleEndian.AppendUint64(b, k.serial)
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

func parseAddress(b []byte) (addrKey, error) {
	if len(b) != addrSize || string(b[:4]) != addrMagic ||
		binary.LittleEndian.Uint32(b[addrSize-4:]) != crc32.ChecksumIEEE(b[:addrSize-4]) {
		return addrKey{}, fmt.Errorf("%w: not an address of a sim endpoint", fabric.ErrBadAddress)
	}
	return addrKey{binary.LittleEndian.Uint64(b[4:]), binary.LittleEndian.Uint64(b[12:])}, nil
}

package rma

import (
	"cmp"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bringup"
	"github.com/seed33544411/rma/internal/topo"
	"github.com/seed33544411/rma/logp"
)

// Distance is the distance of a peer in the hardware of its host or in the network.
type Distance uint8

// Distances, from near to far.
const (
	DistanceSelf    Distance = iota // this rank
	DistanceCache                   // bound to processors that share a cache beyond the first level with this rank's
	DistanceHost                    // on this host
	DistanceNetwork                 // on another host
)

// String returns the name of the distance.
func (d Distance) String() string {
	if d > DistanceNetwork {
		return "unknown"
	}
	return [...]string{"self", "cache", "host", "network"}[d]
}

// Place says where a rank runs, and what the link to it offers to this rank.
type Place struct {
	Host      int      // number of its host, from 0; hosts are numbered in the order of their lowest ranks
	LocalRank int      // its number among the ranks of its host, from 0
	LocalSize int      // number of ranks on its host
	Distance  Distance // from this rank

	// Processors is the number of processors of its host that the ranks there may use, all
	// together; 0 if one of them does not know which it may use.
	Processors int

	// Maps says that the link maps memory of Alloc and Window of that rank into this
	// process: small operations on it are loads, stores and atomics of this processor.
	Maps bool

	// AtomicCPU says that atomics and accumulates of this rank in that rank's memory are
	// atomic with respect to that rank's own sync/atomic operations.
	AtomicCPU bool
}

// PlaceOf returns where the peer runs. Containers that cannot share memory count as
// different hosts. The result never changes, and a call takes microseconds: keep the
// result. PlaceOf may be called from any goroutine.
func PlaceOf(p *Peer) Place {
	at, caps := p.eng.bringup.Place(p.rank), p.eng.links[p.link].Caps()
	r := Place{
		Host: at.Host, LocalRank: at.LocalRank, LocalSize: at.LocalSize, Processors: at.Processors,
		Distance: DistanceNetwork, Maps: caps.MapsAlloc, AtomicCPU: caps.AtomicCPU,
	}
	switch {
	case p.own:
		r.Distance = DistanceSelf
	case at.Near == topo.Core || at.Near == topo.L2 || at.Near == topo.L3:
		r.Distance = DistanceCache
	case at.Here:
		r.Distance = DistanceHost
	}
	return r
}

// ParamsOf returns the present parameters of the cost model for the path to the peer, in
// the units of package logp: measured ones, or defaults. They change when the path has
// been measured. It may be called from any goroutine.
func ParamsOf(p *Peer) logp.Params { return *p.eng.bringup.Path(p.rank).Params }

// connectionEnd is a Peer as seen by its connections.
type connectionEnd Peer

// Heartbeat implements bringup.Peer.
func (c *connectionEnd) Heartbeat() (b bringup.Heartbeat) {
	if h := &c.eng.proto.heart; h.every > 0 {
		b.Every, b.Word = h.every, h.regions[c.link].Key()
		b.Word.Len = beatLength
	}
	return b
}

// Up implements bringup.Peer.
func (c *connectionEnd) Up(ep, self fabric.Endpoint, theirs *bringup.Request) {
	p, e := (*Peer)(c), c.eng
	p.ep, p.self = ep, self
	if p.down != nil { // the connection has ended meanwhile
		p.close()
		return
	}
	carriedBy(p)
	e.proto.feel(p, theirs.Heartbeat)
	if !p.own {
		e.watches.tell(PeerEvent{Rank: p.rank, State: PeerUp})
	}
	p.one.Up(ep)
}

// Down implements bringup.Peer.
func (c *connectionEnd) Down(why error) {
	(*Peer)(c).downWith(why)
	(*Peer)(c).close()
}

// Replan implements bringup.Peer.
func (c *connectionEnd) Replan() {
	(*oneSidedHost)(c).plan()
	if ch := c.msg.Channel(); ch != nil {
		(*messageHost)(c).plan(ch)
	}
}

// RailMarks implements bringup.Peer.
func (c *connectionEnd) RailMarks(number int, mine fabric.Region) {
	c.one.Rails().Marks(number, mine)
}

// RailUp implements bringup.Peer.
func (c *connectionEnd) RailUp(number int, ep fabric.Endpoint, theirs fabric.RemoteKey) error {
	// The event of an endpoint that ends from now on finds it in rails.
	if err := cmp.Or(c.down, ep.Err()); err != nil {
		return err
	}
	r := &c.rails[number]
	r.ep = ep
	if c.eng.links[r.link].Caps().MaxInline < int(theirs.Len) {
		theirs.Len = 0 // marks cannot be copied
	}
	c.one.Rails().Up(number, ep, theirs)
	c.eng.railWatches.tell(c.rank, number, r.lost, nil)
	return nil
}

// RailDown implements bringup.Peer.
func (c *connectionEnd) RailDown(number int, why error) { closeRail((*Peer)(c), number, why) }

// RailClosed implements bringup.Peer.
func (c *connectionEnd) RailClosed(number int, mark uint64) error {
	return c.one.Rails().Closed(number, mark)
}

// RailIdle implements bringup.Peer.
func (c *connectionEnd) RailIdle(number int) bool { return c.one.Rails().Idle(number) }

// Idle implements bringup.Peer.
func (c *connectionEnd) Idle() bool {
	c.eng.proto.inbox.TakeOver()
	return c.one.Idle() && c.msg.Idle()
}

// Cause implements bringup.Peer.
func (c *connectionEnd) Cause(err error) error { return c.eng.jobCause(c.rank, err) }

// oneSidedHost is a Peer as seen by its one-sided operations.
type oneSidedHost Peer

// Connect implements initiator.Host.
func (h *oneSidedHost) Connect() { h.conn.Call() }

// plan sets the parameters of later puts and gets of several pieces. Owner's.
func (h *oneSidedHost) plan() {
	h.eng.prog.AssertOwned()
	forced, way := h.eng.cfg.pieces()
	h.one.Plan(h.eng.bringup.Path(h.rank).Params, forced, way)
}

// Reported implements initiator.Host.
func (h *oneSidedHost) Reported(err error) { (*Peer)(h).reportDown(err) }

// Reason implements initiator.Host.
func (h *oneSidedHost) Reason(c *fabric.Completion) error {
	err := c.Err()
	switch {
	case c.Status == fabric.StatusPeerGone && whyRefused((*Peer)(h)) != nil:
		(*Peer)(h).reportDown(nil)
		return h.down // the peer has closed its end on this side's request
	case c.Status == fabric.StatusFlushed:
		(*Peer)(h).reportDown(nil)
		err = because(err, h.down)
	}
	return err
}

// Down implements initiator.Host.
func (h *oneSidedHost) Down(err error) { (*Peer)(h).downWith(err) }

// Sever implements initiator.Host.
func (h *oneSidedHost) Sever(err error) {
	(*Peer)(h).close()
	(*Peer)(h).downWith(err)
}

// Refused implements initiator.Host.
func (h *oneSidedHost) Refused(err error) { refusedBy((*Peer)(h), err) }

// Error implements initiator.Host.
func (h *oneSidedHost) Error(op string, err error) error {
	return &PeerError{Rank: h.rank, Op: op, Err: err}
}

// RailLost implements initiator.Host.
func (h *oneSidedHost) RailLost(i int, err error) { loseRail((*Peer)(h), i, err) }

// Probed implements initiator.Host.
func (h *oneSidedHost) Probed() { h.eng.proto.felt((*Peer)(h)) }

// keyAccumulate is the key under which the place of the slots for accumulates is published.
const keyAccumulate = "accumulate"

// FetchSlots implements initiator.Host.
func (h *oneSidedHost) FetchSlots(done func(val []byte, err error)) {
	n := h.conn.Now()
	n.Go(func() {
		val, err := n.Published(n.Life(), keyAccumulate)
		done(val, calledJob(n.Life(), (*Peer)(h), err))
	})
}

// PublishSlots implements initiator.Host.
func (h *oneSidedHost) PublishSlots(alloc func() ([]byte, error)) {
	n := h.conn.Now()
	n.Go(func() {
		val, err := alloc()
		if err2 := n.Publish(n.Life(), keyAccumulate, val); err != nil || err2 != nil && n.Life().Err() == nil {
			h.eng.cfg.Logger.Warn("rma: no memory for the accumulates of a peer", "rank", h.rank, "memory", err, "job", err2)
		}
	})
}

package rma

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bringup"
	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/message/hub"
	"github.com/seed33544411/rma/internal/pending"
	"github.com/seed33544411/rma/internal/topo"
)

// Peer is a rank of the job, possibly this one, as the target of operations.
//
// It has many methods because it has one for each operation of an application, in files
// named after the operations: each checks its arguments and makes one call of
// internal/initiator or internal/message/hub.
type Peer struct {
	eng  *Engine
	rank int
	link int // index of the link that reaches it
	num  uint8

	own  bool // this process itself
	conn *bringup.Connector

	// Owner's.
	id      uint32          // of ep
	ep      fabric.Endpoint // nil until connected
	self    fabric.Endpoint // the other end of the connection with oneself
	down    error           // why the connection is no more
	refused error           // why the peer was asked to end it
	noticed chan struct{}   // closed when there is a reason, if somebody waits for it
	hangUp  func()          // ends the opening of the message channel
	pulse   pulse

	unaided atomic.Bool
	opening atomic.Pointer[bringup.Connection] // the message channel, on which

	one    initiator.Queue
	msg    hub.Conversation
	budget pending.Budget // of both
}

// pulse is this side's view of a peer's heartbeat. Owner's.
type pulse struct {
	word    fabric.RemoteKey // Len is 0: there is none to read
	limit   time.Duration    // silence after which the peer hangs
	seen    uint64
	silent  time.Duration // how long this side has looked and seen no change
	asked   bool          // a read is to be posted, or under way
	looking bool          // it was looked at in the last round
	told    bool          // that it is silent, to watchers
	await   bool          // somebody waits for a signal of it
	used    uint64        // operations in the last round
}

// Rank is the peer's rank.
func (p *Peer) Rank() int { return p.rank }

// Link is the name of the link that reaches the peer.
func (p *Peer) Link() string { return p.eng.links[p.link].Name() }

// Unaided reports whether this side accesses all of the peer's memory without the peer's
// process: gets then complete soon even if that process is stopped. It returns false before
// there is a connection.
func (p *Peer) Unaided() bool { return p.unaided.Load() }

// Stats returns the peer's part of the engine's counters. It costs as much as one peer
// costs in Engine.Stats.
func (p *Peer) Stats() (s PeerStats) {
	p.eng.prog.Do(func() { s = p.stats() })
	return s
}

// stats is Stats for the owner.
func (p *Peer) stats() PeerStats {
	s := PeerStats{
		Rank: p.rank, Link: p.Link(), Err: p.down,
		Outstanding: p.budget.Outstanding(), InFlight: p.one.InFlight(), Queued: p.one.Queued() + p.msg.Queued(),
	}
	s.Counts.addOneSided(p.one.Counts())
	s.Counts.addMessages(p.msg.Counts())
	s.Connected = p.ep != nil && p.down == nil
	s.Talking = p.msg.Open()
	if ch := p.msg.Channel(); ch != nil {
		s.Messages = messageStats(ch)
	}
	return s
}

// reach checks an access to n bytes of the peer's memory against the key, so that a mistake
// of this side does not cost the connection; the target checks again.
func (p *Peer) reach(at Remote, n uint64, need fabric.Access) (addr uint64, rkey uint32, err error) {
	switch k := at.key.contents; {
	case k == nil || k.Rails>>p.num&1 == 0:
		return 0, 0, ErrBadKey
	case k.Owner != 0 && k.Owner != owner(p.rank):
		return 0, 0, ErrWrongPeer
	case at.off > k.Len || n > k.Len-at.off:
		return 0, 0, ErrBounds
	case k.Rights&need != need:
		return 0, 0, ErrRemoteAccess
	default:
		return k.Addr + at.off, k.RKeys[p.num], nil
	}
}

// post posts o.
// Hot path.
func (p *Peer) post(o *initiator.Op) Request {
	if p.eng.closed.Load() {
		return p.drop(o, ErrClosed)
	}
	if o.Kind().Moves() && !o.Spend(&p.budget) {
		return p.drop(o, ErrBusy)
	}
	r := newRequest(p.eng, &o.Operation)
	p.one.Post(o)
	return r
}

// message posts o.
// Hot path.
func (p *Peer) message(o *hub.Op) Request {
	e := p.eng
	if e.closed.Load() {
		return refuseMessage(e, o, ErrClosed)
	}
	if o.Kind().Sends() && !o.Spend(&p.budget) {
		return refuseMessage(e, o, ErrBusy)
	}
	r := newRequest(e, &o.Operation)
	p.msg.Post(o)
	return r
}

// drop refuses an operation that has been begun.
func (p *Peer) drop(o *initiator.Op, err error) Request {
	k := o.Kind()
	o.Drop()
	return p.refuse(k.String(), err)
}

// refuse returns the request of an operation that was refused.
func (p *Peer) refuse(op string, err error) Request {
	return Request{eng: p.eng, err: &PeerError{Rank: p.rank, Op: op, Err: err}}
}

// refuseMessage returns the failed request of an operation that was begun and is refused.
func refuseMessage(e *Engine, o *hub.Op, err error) Request {
	return Request{eng: e, err: o.Refuse(err)}
}

// reportDown notes the end of a connection that the link reports, with the
// endpoint's own reason.
func (p *Peer) reportDown(err error) {
	switch {
	case p.refused != nil: // as it was asked to
		err = p.refused
	case p.ep != nil:
		switch why := p.ep.Err(); {
		case why != nil && errors.Is(err, fabric.ErrDown):
			err = why // which is what ErrDown asks to be looked up
		case why != nil:
			err = because(err, why)
		}
	}
	if err == nil {
		err = fabric.ErrDown
	}
	p.downWith(err)
}

// downWith records that the connection with p has ended, and fails the operations that have
// not been posted to the link. Posted ones are flushed.
//
// ErrPeerGone takes precedence, also if it is reported later: a device refuses access to a
// dying process before its death is known.
func (p *Peer) downWith(err error) {
	if p.down == nil || errors.Is(err, ErrPeerGone) && !errors.Is(p.down, ErrPeerGone) && !errors.Is(p.down, ErrClosed) {
		p.down = err
		if !errors.Is(err, ErrPeerGone) && !errors.Is(err, ErrPeerHung) && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNoConnection) {
			p.down = because(ErrFlushed, err)
		}
		if s := stateOf(err); s != 0 && !p.own {
			p.eng.watches.tell(PeerEvent{Rank: p.rank, State: s, Err: p.down})
		}
	}
	if p.noticed != nil {
		close(p.noticed)
		p.noticed = nil
	}
	p.one.Down(p.down)
	p.msg.Down(p.down)
	if end := p.hangUp; end != nil {
		p.hangUp = nil
		wait := min(lastWait, p.eng.cfg.PeerTimeout)
		if errors.Is(err, ErrNoConnection) {
			wait = 0 // nothing comes of a peer that has refused
		}
		time.AfterFunc(wait, end)
	}
}

// Distance says how far a peer is.
type Distance uint8

// Distances, from near to far.
const (
	DistanceSelf    Distance = iota // this rank
	DistanceCache                   // always on processors that share a cache beyond the first level
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

// Place says where a rank runs, and what its link does for this one.
type Place struct {
	Host      int // number of its host, by the order of the hosts' lowest ranks
	LocalRank int // its number among the ranks of its host
	LocalSize int // how many they are
	Distance  Distance

	// Maps: the link maps memory of Alloc and Window of that rank into this process; small
	// operations on it are stores, loads and atomics of this processor.
	Maps bool

	// AtomicCPU: atomics of this rank in that rank's memory, and its accumulates, are
	// atomic with respect to that rank's own sync/atomic.
	AtomicCPU bool
}

// PlaceOf returns where the peer runs. Containers that cannot share memory count as hosts.
// It is the same for as long as the job lives, and takes microseconds: keep it. It may be called
// from any goroutine.
func PlaceOf(p *Peer) Place {
	at, caps := p.eng.bringup.Place(p.rank), p.eng.links[p.link].Caps()
	r := Place{
		Host: at.Host, LocalRank: at.LocalRank, LocalSize: at.LocalSize,
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

// close ends the connection; operations in flight are flushed. Owner's.
func (p *Peer) close() {
	p.eng.prog.AssertOwned()
	for _, ep := range []fabric.Endpoint{p.ep, p.self} {
		if ep != nil {
			_ = ep.Close() // it is the reports of the requests that count
		}
	}
}

// out returns the buffer's memory and its keys on the link to p.
func (b Buffer) out(p *Peer, mem *[]byte, lkey, rkey *uint32) (Access, error) {
	s, err := b.sge(p.eng, p.link)
	if err != nil {
		return 0, err
	}
	*mem, *lkey = b.region.reg.Bytes()[b.off:b.off+b.n], s.LKey
	k := b.region.reg.Key()
	*rkey = k.RKeys[p.num]
	return Access(k.Rights), nil
}

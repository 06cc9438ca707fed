package rma

import (
	"sync/atomic"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bringup"
)

// Peer is a rank of the job, this one included, as the target of operations.
type Peer struct {
	eng  *Engine
	rank int
	link int // index of the link that reaches it
	num  uint8
	max  uint64 // bytes of one request
	sges int    // local pieces of one request

	wakes  bool // a plain write wakes it
	inline bool // the link takes a flag along with its request
	soon   bool // requests are often complete when they are posted
	shows  bool // what it writes is seen here without a poll of the link

	own  bool // this process itself
	conn *bringup.Connector

	// Owner's.
	id       uint32          // of ep
	ep       fabric.Endpoint // nil until connected
	self     fabric.Endpoint // the other end of the connection with oneself
	near     fabric.Direct   // ep, where it offers that
	nows     uint            // operations tried that way
	posts    opQueue         // handed in, not posted; the first perhaps in part
	inflight int             // requests posted, not complete
	full     bool            // the queue was full; ask again after a completion
	active   bool            // on the protocol's list of peers with something to post
	fenced   bool            // the next request waits for all reads before it
	down     error           // why the connection is no more
	noticed  chan struct{}   // closed when there is a reason, if somebody waits for it
	counts   Counts
	open     int32   // one-sided operations handed in, not ended
	epoch    uint32  // of those handed in now
	flushes  opQueue // that wait for operations
	loose    int     // operations that do not take place in the order of requests
	reduces  []*op   // accumulates under way
	loops    loops
	acks     []uint32 // notifications, and reads of the heartbeat, to be posted before anything else
	asks     requests // that the peer accumulates
	serves   serving  // the peer's requests
	pulse    pulse

	unaided   atomic.Bool
	forgotten atomic.Pointer[error] // the first of an operation that nobody waits for, since the last flush

	talk talk
}

// Rank is the peer's rank.
func (p *Peer) Rank() int { return p.rank }

// Link is the name of the link that reaches the peer.
func (p *Peer) Link() string { return p.eng.links[p.link].Name() }

// Unaided reports whether this side reaches the peer's memory, whatever kind it is of,
// without the peer's process: what it fetches is there soon even if that is stopped.
// False before there is a connection.
func (p *Peer) Unaided() bool { return p.unaided.Load() }

// Put copies src to dst. It does not allocate or block.
// Hot path.
func (p *Peer) Put(dst Remote, src Buffer) Request {
	return p.move(kindPut, dst, src)
}

// Get copies src to dst. It does not allocate or block.
// Hot path.
func (p *Peer) Get(dst Buffer, src Remote) Request {
	return p.move(kindGet, src, dst)
}

func (p *Peer) move(kind kind, remote Remote, local Buffer) Request {
	if uint64(local.n) > p.max {
		return p.moveLong(kind, remote, local)
	}
	sge, err := local.sge(p.eng, p.link)
	if err != nil {
		return p.refuse(kind.String(), err)
	}
	if p.soon && local.n <= nowMax && local.n > 0 {
		addr, rkey, err := p.reach(remote, uint64(local.n), right(kind))
		if err != nil {
			return p.refuse(kind.String(), err)
		}
		if r := p.now(kind, sge, addr, rkey); r.eng != nil {
			return r
		}
	}
	o := newOp(p, kind)
	o.sge = sge
	return p.submit(o, remote, uint64(local.n))
}

// reach checks an access to n bytes of the peer's memory against what the key says, as a
// courtesy, so that a slip of this side does not cost the connection; the target
// checks again.
func (p *Peer) reach(at Remote, n uint64, need fabric.Access) (addr uint64, rkey uint32, err error) {
	switch k := at.key; {
	case k == nil || k.k.Rails>>p.num&1 == 0:
		return 0, 0, ErrBadKey
	case k.k.Owner != 0 && k.k.Owner != owner(p.rank):
		return 0, 0, ErrWrongPeer
	case at.off > k.k.Len || n > k.k.Len-at.off:
		return 0, 0, ErrBounds
	case k.k.Rights&need != need:
		return 0, 0, ErrRemoteAccess
	default:
		return k.k.Addr + at.off, k.k.RKeys[p.num], nil
	}
}

// right is what an operation needs of the memory that it is about.
func right(kind kind) fabric.Access {
	switch kind {
	case kindPut, kindPutSignal:
		return fabric.AccessRemoteWrite
	case kindGet:
		return fabric.AccessRemoteRead
	}
	return fabric.AccessRemoteAtomic
}

// submit checks the n bytes of the peer's memory that o is about, and hands o in.
func (p *Peer) submit(o *op, at Remote, n uint64) Request {
	var err error
	if o.remote, o.rkey, err = p.reach(at, n, right(o.kind)); err != nil {
		return p.drop(o, err)
	}
	return p.handIn(o)
}

// handIn hands o in: to the link at once if nobody else is at work, else to whoever
// is.
// Hot path.
func (p *Peer) handIn(o *op) Request {
	e := p.eng
	if e.closed.Load() {
		return p.drop(o, ErrClosed)
	}
	r := e.request(&o.Operation)
	if !e.prog.Own() {
		e.proto.inbox.Push(&o.Operation)
		e.prog.Kick()
		return r
	}
	e.proto.one.handOver(p, o)
	e.prog.Disown()
	return r
}

// drop refuses an operation that has been begun.
func (p *Peer) drop(o *op, err error) Request {
	kind := o.kind
	o.Drop()
	return p.refuse(kind.String(), err)
}

// refuse is the request of an operation that was refused.
func (p *Peer) refuse(op string, err error) Request {
	return Request{eng: p.eng, err: &PeerError{Rank: p.rank, Op: op, Err: err}}
}

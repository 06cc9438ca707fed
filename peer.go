package rma

import (
	"github.com/seed33544411/rma/fabric"
)

// Peer is a rank of the job, this one included, as the target of operations.
type Peer struct {
	eng  *Engine
	rank int
	link int // index of the link that reaches it
	num  uint8
	max  uint64 // bytes of one request

	// Owner's.
	ep     fabric.Endpoint
	self   fabric.Endpoint // the other end of the connection with oneself
	posts  opQueue         // handed in, not posted
	flying int             // posted, not complete
	full   bool            // the queue was full; ask again after a completion
	active bool            // on the protocol's list of peers with something to post
	down   error           // why the connection is no more
	counts Counts

	talk talk
}

// Rank is the peer's rank.
func (p *Peer) Rank() int { return p.rank }

// Link is the name of the link that reaches the peer.
func (p *Peer) Link() string { return p.eng.links[p.link].Name() }

// Put copies src to dst. Short path: does not allocate or block.
func (p *Peer) Put(dst Remote, src Buffer) Request {
	return p.move(fabric.OpWrite, dst, src)
}

// Get copies src to dst. Short path: does not allocate or block.
func (p *Peer) Get(dst Buffer, src Remote) Request {
	return p.move(fabric.OpRead, src, dst)
}

func (p *Peer) move(kind fabric.Op, remote Remote, local Buffer) Request {
	sge, err := local.sge(p.eng, p.link)
	if err != nil {
		return p.refuse(kind, err)
	}
	if uint64(local.n) > p.max {
		return p.refuse(kind, ErrTooLarge)
	}
	o := newOp(p, kind)
	o.sge = sge
	return p.submit(o, remote, uint64(local.n))
}

// FetchAdd adds to the 8-byte word at dst, which must lie on a multiple of 8,
// and returns what it held before.
func (p *Peer) FetchAdd(dst Remote, add uint64) AtomicRequest {
	o := newOp(p, fabric.OpFetchAdd)
	o.operand = add
	return AtomicRequest{p.submit(o, dst, 8)}
}

// CompareSwap sets the 8-byte word at dst, which must lie on a multiple of 8,
// to swap if it holds compare, and returns what it held before.
func (p *Peer) CompareSwap(dst Remote, compare, swap uint64) AtomicRequest {
	o := newOp(p, fabric.OpCompareSwap)
	o.compare, o.operand = compare, swap
	return AtomicRequest{p.submit(o, dst, 8)}
}

// submit hands o in. What the key says is checked here as a courtesy, so that
// a slip of this side does not cost the connection; the target checks again.
func (p *Peer) submit(o *op, at Remote, n uint64) Request {
	var err error
	switch k := at.key; {
	case k == nil || k.k.Rails>>p.num&1 == 0:
		err = ErrBadKey
	case at.off > k.k.Len || n > k.k.Len-at.off:
		err = ErrBounds
	case o.kind >= fabric.OpFetchAdd && (k.k.Addr+at.off)%8 != 0:
		err = ErrAlign
	default:
		o.remote, o.rkey = k.k.Addr+at.off, k.k.RKeys[p.num]
	}
	kind := o.kind
	if err == nil && p.eng.closed.Load() {
		err = ErrClosed
	}
	if err != nil {
		o.recycle()
		return p.refuse(kind, err)
	}
	r := Request{eng: p.eng, op: o, gen: o.gen.Load()}
	p.eng.proto.in.push(o)
	p.eng.prog.Kick()
	return r
}

func (p *Peer) refuse(kind fabric.Op, err error) Request {
	return Request{err: &PeerError{Rank: p.rank, Op: opName(kind), Err: err}}
}

package rma

import "github.com/seed33544411/rma/fabric"

// FetchAdd adds to the 8-byte word at dst, which must lie on a multiple of 8,
// and returns what it held before. Short path: does not allocate or block.
func (p *Peer) FetchAdd(dst Remote, add uint64) AtomicRequest {
	o := newOp(p, fabric.OpFetchAdd)
	o.operand = add
	return AtomicRequest{p.submitWord(o, dst)}
}

// CompareSwap sets the 8-byte word at dst, which must lie on a multiple of 8,
// to swap if it holds compare, and returns what it held before. Short path: does
// not allocate or block.
func (p *Peer) CompareSwap(dst Remote, compare, swap uint64) AtomicRequest {
	o := newOp(p, fabric.OpCompareSwap)
	o.compare, o.operand = compare, swap
	return AtomicRequest{p.submitWord(o, dst)}
}

// submitWord hands in an operation on an aligned word of 8 bytes.
func (p *Peer) submitWord(o *op, at Remote) Request {
	var err error
	o.remote, o.rkey, err = p.reach(at, 8)
	if err == nil && o.remote%8 != 0 {
		err = ErrAlign
	}
	if err != nil {
		return p.drop(o, err)
	}
	return p.handIn(o)
}

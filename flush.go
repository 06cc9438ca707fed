package rma

import (
	"context"
	"errors"
)

// Flush returns a request that is complete when all one-sided operations handed
// in for the peer before, by whatever goroutine, are complete: puts, atomics and
// accumulates have taken place in the target's memory, what gets fetched is here.
// It fails with the first error among them, those of operations given up with
// Forget since the last Flush included, and if the connection is gone. Messages are no
// part of it.
func (p *Peer) Flush() Request { return p.handIn(newOp(p, kindFlush)) }

// Fence orders without waiting: one-sided operations handed in for the peer after
// it take place after all those handed in before, gets and emulated atomics
// included. Puts and the atomics of links need no fence among themselves.
func (p *Peer) Fence() {
	if o := newOp(p, kindFence); o.Detach() {
		p.handIn(o)
	}
}

// FlushAll flushes all peers and waits for it. It joins their errors.
func (e *Engine) FlushAll(ctx context.Context) error {
	var busy []*Peer
	e.prog.Do(func() {
		e.proto.inbox.TakeOver()
		for _, p := range e.peers {
			if p.open > 0 || p.forgotten.Load() != nil {
				busy = append(busy, p)
			}
		}
	})
	reqs := make([]Request, len(busy))
	for i, p := range busy {
		reqs[i] = p.Flush()
	}
	return WaitAll(ctx, reqs...)
}

// FenceAll is Fence for every peer. Between two peers there is no order: wait.
func (e *Engine) FenceAll() {
	var busy []*Peer
	e.prog.Do(func() {
		e.proto.inbox.TakeOver()
		for _, p := range e.peers {
			if p.open > 0 {
				busy = append(busy, p)
			}
		}
	})
	for _, p := range busy {
		p.Fence()
	}
}

// flush begins a flush.
func (t *initiator) flush(p *Peer, o *op) {
	if p.open == 0 {
		t.endFlush(p, o)
		return
	}
	o.pending = p.open
	o.epoch = p.epoch
	p.epoch++
	p.flushes.push(o)
}

// flushed notes the end of an operation of that epoch in the flushes that wait for
// it.
func (t *initiator) flushed(p *Peer, epoch uint32, err error) {
	for f := p.flushes.head; f != nil; f = f.next {
		if int32(f.epoch-epoch) < 0 {
			continue // the flush came before
		}
		f.pending--
		if f.Err == nil {
			f.Err = err
		}
	}
	for p.flushes.head != nil && p.flushes.head.pending == 0 {
		t.endFlush(p, p.flushes.pop())
	}
}

func (t *initiator) endFlush(p *Peer, f *op) {
	if err := p.forgotten.Swap(nil); err != nil && f.Err == nil {
		f.Err = *err
	}
	if f.Err == nil && p.down != nil {
		t.note(f, p.down)
	}
	f.Finish()
}

// joined is errors.Join without its allocation where there is at most one.
func joined(first, next error) error {
	if first == nil || next == nil {
		if next == nil {
			return first
		}
		return next
	}
	return errors.Join(first, next)
}

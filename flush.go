package rma

import (
	"context"

	"github.com/seed33544411/rma/internal/initiator"
)

// Flush returns a request that is complete when all one-sided operations posted
// for the peer before, by whatever goroutine, are complete: puts, atomics and
// accumulates have taken place in the target's memory, what gets fetched is here.
// It fails with the first error among them, those of operations given up with
// Forget since the last Flush included, and if the connection is gone. Messages are no
// part of it.
func (p *Peer) Flush() Request { return p.post(initiator.New(&p.one, initiator.Flush)) }

// Fence orders without waiting: one-sided operations posted for the peer after
// it take place after all those posted before, gets and emulated atomics
// included. Puts and the atomics of links need no fence among themselves.
func (p *Peer) Fence() {
	if o := initiator.New(&p.one, initiator.Fence); o.Detach() {
		p.post(o)
	}
}

// FlushAll flushes all peers and waits for it. It joins their errors.
func (e *Engine) FlushAll(ctx context.Context) error {
	var busy []*Peer
	e.prog.Do(func() {
		e.proto.inbox.TakeOver()
		for _, p := range e.peers {
			if p.one.Unflushed() {
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
			if p.one.Busy() {
				busy = append(busy, p)
			}
		}
	})
	for _, p := range busy {
		p.Fence()
	}
}

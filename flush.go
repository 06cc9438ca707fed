package rma

import (
	"context"

	"github.com/seed33544411/rma/internal/initiator"
)

// Flush returns a request that is complete when all one-sided operations posted for the
// peer before, by any goroutine, are complete: puts, atomics and accumulates have taken
// place in the target's memory, and the data of gets is in local memory. It fails with the
// first error among them and among operations released with Forget since the last Flush,
// and if the connection is lost. Messages are not included.
func (p *Peer) Flush() Request { return p.post(initiator.New(&p.one, initiator.Flush)) }

// Fence orders operations without waiting: one-sided operations posted for the peer after
// it take place after all those posted before, gets and emulated atomics included. Puts and
// the atomics of links need no fence among themselves.
func (p *Peer) Fence() {
	if o := initiator.New(&p.one, initiator.Fence); o.Detach() {
		p.post(o)
	}
}

// FlushAll flushes all peers and waits. It joins their errors.
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

// FenceAll calls Fence for every peer. There is no order between two peers: wait instead.
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

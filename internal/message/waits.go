package message

import (
	"github.com/seed33544411/rma/flowctl"
	"github.com/seed33544411/rma/logp"
)

// waits says how long b has to wait for what earlier batches still hold: the ring,
// where it has no room for all of b now, and the peer's list of transfers.
func (c *Channel) waits(b *logp.Batch) {
	l := &b.Limits
	free := int64(c.ring.Free(flowctl.Data)) * l.EagerBlock
	b.Wait = [logp.NumModes]float64{}
	full := c.long.Full()
	if free >= l.Ring && !full {
		return
	}
	var one, alone int64 // of the ring: in one gather, eager
	for i := range b.Messages {
		n := b.Messages[i].Size + int64(l.Header)
		one += n
		alone += (n + l.EagerBlock - 1) / l.EagerBlock * l.EagerBlock
	}
	if alone <= free && !full {
		return
	}
	p := c.plan.Params()
	b.Wait[logp.Eager] = p.CreditWait(l, free, alone)
	b.Wait[logp.Gather] = p.CreditWait(l, free, one)
	if full {
		b.Wait[logp.Scatter] = 2*p.Ls + p.Lh // of one of those under way
	}
}

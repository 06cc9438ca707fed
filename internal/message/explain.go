package message

import (
	"math"
	"slices"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/logp"
)

// Explain says how outs would go if they were the backlog, and why, without
// sending them. It allocates. Errors are the planner's, or that of a channel that
// is not connected or has ended.
func (c *Channel) Explain(outs []Out) (*logp.Explanation, error) {
	switch {
	case c.err != nil:
		return nil, c.err
	case !c.live:
		return nil, eager.ErrNotConnected
	}
	b := logp.Batch{Limits: c.batch.Limits}
	var n neighbour
	var written []logp.Message
	open := slices.Clone(c.wants.open)
	for i := range outs {
		o := &outs[i]
		m := n.describe(o)
		fits := false
		for k := 0; k < len(open); k++ { // as assign does
			if x := open[k]; x.takes(o.Tag) {
				open = slices.Delete(open, k, k+1)
				k--
				if fits = uint64(len(o.Data)) <= uint64(x.len); fits {
					break
				}
			}
		}
		if fits && len(o.Data) >= c.wants.from {
			written = append(written, m)
			n.end = 0
		} else {
			b.Messages = append(b.Messages, m)
		}
	}
	c.waits(&b)
	explain := c.plan.Explain
	if len(c.wants.open) == 0 && c.isTrain(&b) {
		explain = c.plan.ExplainTrain
	}
	x, err := explain(&b)
	if err == nil {
		p := c.plan.Params()
		x.AddDirect(&p, written)
	}
	return x, err
}

// boundLarge finds the length from which on a message alone is announced, and
// that from which on one is written where its destination is known: there the
// alternatives are the ring, and, if somebody has said so, what he said.
func (c *Channel) boundLarge() {
	c.ads.min, c.wants.from = math.MaxInt, math.MaxInt
	b := logp.Batch{Messages: make([]logp.Message, 1), Limits: c.batch.Limits}
	for n := int64(1); n <= 1<<30; n *= 2 {
		b.Messages[0] = logp.Message{Size: n, Flags: logp.Registered | logp.DestRegistered}
		if p, err := c.plan.Plan(&b); err == nil && p.Modes() == logp.ModeSet(0).With(logp.Scatter) {
			c.ads.min = int(n)
			break
		}
	}
	c.wants.from = c.ads.min
	if p := c.plan.Params(); c.ads.min < math.MaxInt && !c.opt.Policy.Forced && len(c.opt.Policy.Table) == 0 {
		c.wants.from = max(min(c.wants.from, int(min(p.DirectFrom(&b.Limits), math.MaxInt32))), c.alone+1)
		c.ads.min = max(c.ads.min, advertFrom)
	}
	if c.opt.Adverts < 0 {
		c.ads.min = math.MaxInt
	}
}

package rma

import (
	"context"
	"runtime/trace"

	"github.com/seed33544411/rma/internal/initiator"
)

// Regions of execution traces; docs/observability.md lists them. Without a trace
// the only cost is the question whether there is one: a load and a branch.
const (
	regionOpen     = "rma.open"
	regionBarrier  = "rma.barrier"
	regionRegister = "rma.register"
	regionWait     = "rma.wait." // and the operation's name, signal, all or any
)

// trace begins the region of a wait, and says for whom. The request is good. What
// peer a receive is from may only be known in the end.
func (r Request) trace(ctx context.Context) *trace.Region {
	op, rank := r.op.Describe()
	switch {
	case op == initiator.Await.String():
		op = "signal"
	case rank != AnyRank:
		trace.Logf(ctx, "rma", "rank %d", rank)
	}
	return trace.StartRegion(ctx, regionWait+op)
}

package collective

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed33544411/rma/coll"
)

// kernel is an operation on memory of its own. Blocks have n elements; block s of what rank r
// sends has the elements element(r, s, i), so that a wrong result is found.
type kernel struct {
	call    func() error                     // the blocking form
	start   func() *coll.Request             // the form that returns a request
	prepare func() (*coll.Persistent, error) // the form that returns a persistent operation
	check   func() error                     // calls it, and returns ErrWrong if its result is wrong
}

// Calls are the forms in which operations are called: the blocking one, a start and a wait, and
// those of a persistent operation.
var Calls = []string{"blocking", "started", "persistent"}

// use makes call a form of Calls. end ends it.
func (k *kernel) use(ctx context.Context, form string) (end func() error, err error) {
	switch form {
	case "started":
		k.call = func() error { return k.start().Wait(ctx) }
	case "persistent":
		op, err := k.prepare()
		if err != nil {
			return nil, err
		}
		k.call = func() error { return op.Start().Wait(ctx) }
		return op.Close, nil
	}
	return func() error { return nil }, nil
}

// element is element i of the block s of rank r. Sums over 256 ranks are exact.
func element(r, s, i int) float64 { return float64(1 + r + 257*s + i%4096) }

// Ops are the operations that are measured.
var Ops = []string{"barrier", "bcast", "reduce", "allreduce", "reducescatter", "gather", "gatherv", "scatter", "scatterv", "allgather", "allgatherv",
	"alltoall", "alltoallv", "scan", "exscan"}

// newKernel returns an operation of n bytes. The blocks of the v forms have equal lengths, and
// lie one behind the other, as in the OSU micro-benchmarks.
func newKernel(ctx context.Context, t *coll.Team, op string, n int) *kernel {
	n /= 8 // 0 for a barrier
	p, me := t.Size(), t.Rank()
	one, all := make([]float64, n), make([]float64, n*p)   // sent
	one2, all2 := make([]float64, n), make([]float64, n*p) // received
	blocks, blocks2 := make([][]float64, p), make([][]float64, p)
	for s := range p {
		blocks[s], blocks2[s] = all[s*n:(s+1)*n:(s+1)*n], all2[s*n:(s+1)*n:(s+1)*n]
		for i := range n {
			blocks[s][i] = element(me, s, i)
		}
	}
	copy(one, blocks[0])
	k := map[string]kernel{
		"barrier": {call: func() error { return coll.Barrier(ctx, t) },
			start:   func() *coll.Request { return coll.StartBarrier(t) },
			prepare: func() (*coll.Persistent, error) { return coll.PrepareBarrier(t) }},
		"bcast": {call: func() error { return coll.Bcast(ctx, t, 0, one2) },
			start:   func() *coll.Request { return coll.StartBcast(t, 0, one2) },
			prepare: func() (*coll.Persistent, error) { return coll.PrepareBcast(t, 0, one2) }},
		"reduce": {call: func() error { return coll.Reduce(ctx, t, 0, one, one2, coll.Sum) },
			start:   func() *coll.Request { return coll.StartReduce(t, 0, one, one2, coll.Sum) },
			prepare: func() (*coll.Persistent, error) { return coll.PrepareReduce(t, 0, one, one2, coll.Sum) }},
		"allreduce": {call: func() error { return coll.Allreduce(ctx, t, one, one2, coll.Sum) },
			start:   func() *coll.Request { return coll.StartAllreduce(t, one, one2, coll.Sum) },
			prepare: func() (*coll.Persistent, error) { return coll.PrepareAllreduce(t, one, one2, coll.Sum) }},
		"reducescatter": {call: func() error { return coll.ReduceScatter(ctx, t, all, one2, coll.Sum) },
			start:   func() *coll.Request { return coll.StartReduceScatter(t, all, one2, coll.Sum) },
			prepare: func() (*coll.Persistent, error) { return coll.PrepareReduceScatter(t, all, one2, coll.Sum) }},
		"gather": {call: func() error { return coll.Gather(ctx, t, 0, one, all2) },
			start:   func() *coll.Request { return coll.StartGather(t, 0, one, all2) },
			prepare: func() (*coll.Persistent, error) { return coll.PrepareGather(t, 0, one, all2) }},
		"gatherv": {call: func() error { return coll.Gatherv(ctx, t, 0, one, blocks2) },
			start:   func() *coll.Request { return coll.StartGatherv(t, 0, one, blocks2) },
			prepare: func() (*coll.Persistent, error) { return coll.PrepareGatherv(t, 0, one, blocks2) }},
		"scatter": {call: func() error { return coll.Scatter(ctx, t, 0, all, one2) },
			start:   func() *coll.Request { return coll.StartScatter(t, 0, all, one2) },
			prepare: func() (*coll.Persistent, error) { return coll.PrepareScatter(t, 0, all, one2) }},
		"scatterv": {call: func() error { return coll.Scatterv(ctx, t, 0, blocks, one2) },
			start:   func() *coll.Request { return coll.StartScatterv(t, 0, blocks, one2) },
			prepare: func() (*coll.Persistent, error) { return coll.PrepareScatterv(t, 0, blocks, one2) }},
		"allgather": {call: func() error { return coll.Allgather(ctx, t, one, all2) },
			start:   func() *coll.Request { return coll.StartAllgather(t, one, all2) },
			prepare: func() (*coll.Persistent, error) { return coll.PrepareAllgather(t, one, all2) }},
		"allgatherv": {call: func() error { return coll.Allgatherv(ctx, t, one, blocks2) },
			start:   func() *coll.Request { return coll.StartAllgatherv(t, one, blocks2) },
			prepare: func() (*coll.Persistent, error) { return coll.PrepareAllgatherv(t, one, blocks2) }},
		"alltoall": {call: func() error { return coll.Alltoall(ctx, t, all, all2) },
			start:   func() *coll.Request { return coll.StartAlltoall(t, all, all2) },
			prepare: func() (*coll.Persistent, error) { return coll.PrepareAlltoall(t, all, all2) }},
		"alltoallv": {call: func() error { return coll.Alltoallv(ctx, t, blocks, blocks2) },
			start:   func() *coll.Request { return coll.StartAlltoallv(t, blocks, blocks2) },
			prepare: func() (*coll.Persistent, error) { return coll.PrepareAlltoallv(t, blocks, blocks2) }},
		"scan": {call: func() error { return coll.Scan(ctx, t, one, one2, coll.Sum) },
			start:   func() *coll.Request { return coll.StartScan(t, one, one2, coll.Sum) },
			prepare: func() (*coll.Persistent, error) { return coll.PrepareScan(t, one, one2, coll.Sum) }},
		"exscan": {call: func() error { return coll.Exscan(ctx, t, one, one2, coll.Sum) },
			start:   func() *coll.Request { return coll.StartExscan(t, one, one2, coll.Sum) },
			prepare: func() (*coll.Persistent, error) { return coll.PrepareExscan(t, one, one2, coll.Sum) }},
	}[op]
	received := one2
	if strings.Contains(op, "gather") || strings.Contains(op, "alltoall") {
		received = all2
	}
	k.check = func() error {
		clear(received)
		if op == "bcast" && me == 0 {
			copy(received, one)
		}
		if err := k.call(); err != nil {
			return err
		}
		for i, got := range received {
			from, to, block := sources(op, p, me, i/n)
			want := 0.0
			for r := from; r < to; r++ {
				want += element(r, block, i%n)
			}
			if from < to && got != want {
				return fmt.Errorf("%w: element %d at rank %d is %v, want %v", ErrWrong, i, me, got, want)
			}
		}
		return nil
	}
	return &k
}

// sources returns the ranks from which block s of what rank me of p receives is the sum, and
// which of their blocks; no ranks if it receives nothing.
func sources(op string, p, me, s int) (from, to, block int) {
	switch op {
	case "bcast":
		return 0, 1, 0
	case "scatter", "scatterv":
		return 0, 1, me
	case "allreduce":
		return 0, p, 0
	case "reducescatter":
		return 0, p, me
	case "allgather", "allgatherv":
		return s, s + 1, 0
	case "alltoall", "alltoallv":
		return s, s + 1, me
	case "scan":
		return 0, me + 1, 0
	case "exscan":
		return 0, me, 0
	}
	switch {
	case me != 0: // of reduce and gather, only the root receives
		return 0, 0, 0
	case op == "reduce":
		return 0, p, 0
	case op == "gather", op == "gatherv":
		return s, s + 1, 0
	}
	return 0, 0, 0
}

// ErrWrong reports an operation with a wrong result.
var ErrWrong = errors.New("collective: wrong result")

// Command paramserver fits a linear model with a parameter server: workers fetch the
// parameters, compute a gradient on data of their own, and add it to the parameters
// where they lie, all with one-sided operations and none in step with another.
//
//	rmarun -n 4 go run ./examples/paramserver -params 256 -steps 3000
//	rmarun -n 6 go run ./examples/paramserver -servers 2 -float32
//
//	256 parameters of float64 on 1 of 4 ranks, 3 workers over shm: 9000 steps in 0.20 s, 44705 a second
//	18.4 MB fetched, 18.4 MB accumulated
//	converged: no parameter is off by more than 5.8e-15, the largest is 2.94
//
// # What it shows
//
// In a parameter server over RPC, each fetch and each gradient is a request that a
// thread of the server takes from a queue, under a lock or in turn. Here the server's
// application allocates memory and goes to sleep:
//
//   - Peer.Get fetches the parameters into registered memory of the worker. It looks at
//     no lock: some of the values may be from before a gradient and some from after it, and
//     stochastic descent does not mind (Recht and others, "Hogwild!", 2011).
//   - Accumulate adds a slice of float32 or float64 to such a slice elsewhere. Each
//     element is added atomically with respect to other accumulates, so that no
//     worker's contribution is lost; the engine of the server does it, not its application.
//   - Neither is waited for longer than need be: a gradient is on its way while the next
//     is computed (worker.go), and is waited for when its memory is wanted again.
//   - Peer.Signal tells the servers that a worker has finished. They sleep in
//     Peer.WaitSignal, one word a worker, and hear of a worker's death there.
//
// Signals overtake accumulates (docs/memory-model.md), so a worker waits for its last
// gradients before it signals.
//
// # What to look at
//
// The data is consistent: rows x with y = x·w for a w that all ranks can generate, from a
// fixed seed. Descent must come to that w, however late gradients are: steps are small
// enough for all workers to be late at once (model.go). The program fails where the
// result is not w; -steps 100 shows that.
//
// Steps a second grow with workers as long as there are processors for them; try
// RMA_FABRIC=tcp, where the server's engine serves each fetch, and shm, where it does not.
// With -float32 half as many bytes travel. With -servers the parameters
// are cut into parts that lie on several ranks: a fetch is then several Gets at once.
//
// # Files
//
//	place.go   who serves, who works, and where the parameters lie
//	model.go   the data, the gradient, the step
//	worker.go  fetch, compute, add
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/examples/internal/command"
)

type options struct {
	params, batch, steps, servers int
	single                        bool    // float32
	tolerance                     float64 // of the largest error of a parameter
}

func main() {
	var o options
	flag.IntVar(&o.params, "params", 256, "parameters of the model")
	flag.IntVar(&o.batch, "batch", 64, "rows of data that a gradient is computed from")
	flag.IntVar(&o.steps, "steps", 3000, "steps of each worker")
	flag.IntVar(&o.servers, "servers", 1, "ranks that hold parameters; the others work")
	flag.BoolVar(&o.single, "float32", false, "parameters of 4 bytes instead of 8")
	flag.Float64Var(&o.tolerance, "tolerance", 1e-3, "largest error of a parameter at the end")
	command.Main(func(ctx context.Context) error { return run(ctx, o) })
}

func run(ctx context.Context, o options) error {
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer eng.Close()
	p := place{params: o.params, servers: o.servers, size: eng.Size()}
	if err := p.check(); err != nil {
		return err
	}
	if o.batch < 1 || o.steps < 1 {
		return fmt.Errorf("want at least a row a batch, and a step")
	}
	if o.single {
		return train[float32](ctx, eng, p, o)
	}
	return train[float64](ctx, eng, p, o)
}

func train[T number](ctx context.Context, eng *rma.Engine, p place, o options) error {
	win, err := eng.Window(ctx, bytesOf[T](p)) // zeroed: where descent begins
	if err != nil {
		return err
	}
	var w *worker[T]
	if p.works(eng.Rank()) {
		if w, err = newWorker[T](eng, win, p, o.batch); err != nil {
			return err
		}
	}
	if err := eng.Barrier(ctx); err != nil { // all data is generated
		return err
	}
	start := time.Now()
	if w != nil {
		if err := w.run(ctx, o.steps); err != nil {
			return err
		}
	}
	if p.serves(eng.Rank()) {
		steps, err := await(ctx, eng, win, p)
		if err != nil {
			return err
		}
		if eng.Rank() == 0 {
			if err := report[T](ctx, eng, win, p, o, steps, time.Since(start)); err != nil {
				return err
			}
		}
	}
	if err := eng.Barrier(ctx); err != nil {
		return err
	}
	return win.Free(ctx)
}

// await is what the application of a server does: it sleeps until all workers have
// finished. It returns the steps that they took.
func await(ctx context.Context, eng *rma.Engine, win *rma.Window, p place) (steps uint64, err error) {
	for rank := range p.size {
		if !p.works(rank) {
			continue
		}
		n, err := eng.Peer(rank).WaitSignal(ctx, win.Slice(8*rank, 8), rma.GE, 1)
		if err != nil {
			return 0, err
		}
		steps += n
	}
	return steps, nil
}

// report fetches the parameters as a worker does, and compares them with the solution. All
// workers have waited for all they added, on all servers, before they told this one.
func report[T number](ctx context.Context, eng *rma.Engine, win *rma.Window, p place, o options, steps uint64, took time.Duration) error {
	f, err := newFetch[T](eng, win, p)
	if err != nil {
		return err
	}
	defer f.close()
	got, err := f.all(ctx)
	if err != nil {
		return err
	}
	want := solution[T](p.params)
	var off, largest float64
	for i := range want {
		off = max(off, math.Abs(float64(got[i]-want[i]))) // NaN stays NaN
		largest = max(largest, math.Abs(float64(want[i])))
	}
	var zero T
	moved := float64(steps) * float64(p.params) * float64(len(rma.Bytes([]T{zero})))
	fmt.Printf("%d parameters of %T on %d of %d ranks, %d workers over %s: %d steps in %.2f s, %.0f a second\n",
		p.params, zero, p.servers, p.size, p.workers(), eng.Peer(p.size-1).Link(), steps, took.Seconds(), float64(steps)/took.Seconds())
	fmt.Printf("%.1f MB fetched, %.1f MB accumulated\n", moved/1e6, moved/1e6)
	if !(off <= o.tolerance) {
		return fmt.Errorf("a parameter is off by %.3g, more than %.3g, after %d steps", off, o.tolerance, steps)
	}
	fmt.Printf("converged: no parameter is off by more than %.2g, the largest is %.2f\n", off, largest)
	return nil
}

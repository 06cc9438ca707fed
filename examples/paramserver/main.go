// Command paramserver fits a linear model with a parameter server: workers fetch the
// parameters, compute a gradient on their own data, and add it to the parameters in the
// server's memory, by one-sided operations and without synchronisation between workers.
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
// thread of the server takes from a queue. Here the server's application allocates memory
// and sleeps:
//
//   - Peer.Get fetches the parameters into registered memory of the worker, without a
//     lock. It may return some values from before a gradient and some from after it, which
//     stochastic gradient descent tolerates (Recht and others, "Hogwild!", 2011).
//   - Accumulate adds a slice of float32 or float64 to a slice in the server's memory.
//     Each element is added atomically with respect to other accumulates, so that no
//     contribution is lost. The server's engine adds, not its application.
//   - A gradient is in flight while the worker computes the next one (worker.go). The
//     worker waits for it before it reuses its memory.
//   - Peer.Signal notifies the servers that a worker has finished. They sleep in
//     Peer.WaitSignal, with one word per worker, which fails if the worker dies.
//
// Signals may overtake accumulates (docs/memory-model.md), so a worker waits for its last
// gradients before it signals.
//
// # Experiments
//
// The data is consistent: rows x with y = x·w for a w that all ranks generate from a fixed
// seed. Descent must converge to w, however late gradients are: steps are small enough for
// all workers to be late at once (model.go). The program fails if the result is not w;
// -steps 100 shows that.
//
// Steps per second grow with the number of workers while there are processors for them.
// Compare RMA_FABRIC=tcp, where the server's engine serves each fetch, with shm, where it
// does not. -float32 halves the bytes. -servers divides the parameters among several ranks;
// a fetch is then several concurrent Gets.
//
// # Files
//
//	place.go   roles of ranks, and the layout of the parameters
//	model.go   the data, the gradient, the step
//	worker.go  fetch, compute, add
package main

import (
	"context"
	"errors"
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
	flag.IntVar(&o.batch, "batch", 64, "rows of data per gradient")
	flag.IntVar(&o.steps, "steps", 3000, "steps per worker")
	flag.IntVar(&o.servers, "servers", 1, "ranks that hold parameters; the others compute gradients")
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
		return fmt.Errorf("want at least one row per batch, and one step")
	}
	if o.single {
		return train[float32](ctx, eng, p, o)
	}
	return train[float64](ctx, eng, p, o)
}

func train[T number](ctx context.Context, eng *rma.Engine, p place, o options) error {
	win, err := eng.Window(ctx, bytesOf[T](p)) // zeroed: the start of the descent
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
	var verdict error
	if p.serves(eng.Rank()) {
		steps, err := await(ctx, eng, win, p)
		if err != nil {
			return err
		}
		if eng.Rank() == 0 {
			verdict = report[T](ctx, eng, win, p, o, steps, time.Since(start))
		}
	}
	// A bad result is no reason to leave the others: they would fail too, and the launcher
	// might end this rank before it has said why.
	if err := eng.Barrier(ctx); err != nil {
		return errors.Join(verdict, err)
	}
	return errors.Join(verdict, win.Free(ctx))
}

// await is the application of a server: it sleeps until all workers have finished, and
// returns the number of their steps.
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
// workers waited for their additions, on all servers, before they signalled this one.
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
		return fmt.Errorf("a parameter has an error of %.3g, more than %.3g, after %d steps", off, o.tolerance, steps)
	}
	fmt.Printf("converged: no parameter is off by more than %.2g, the largest is %.2f\n", off, largest)
	return nil
}

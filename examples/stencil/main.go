// Command stencil computes the diffusion of heat over a square plate: Jacobi iteration
// on a grid that is divided into one tile per rank, with halos exchanged by one-sided
// operations.
//
//	rmarun -n 4 go run ./examples/stencil -n 1024 -iters 500 -check
//	mpirun -n 4 stencil -n 1024; srun -n 4 stencil -n 1024
//
//	1024 x 1024 cells on 2 x 2 ranks over shm: 500 iterations in 2.88 s, 182 million cells a second
//	largest change of the last iteration: 0.0479
//	equal to the serial computation, bit for bit
//
// # What it shows
//
// A new value of a cell depends on its four neighbours, so in each iteration a tile
// needs the cells just outside of it, from up to four other ranks. MPI programs post
// receives, send, and wait for all of these. Here a rank writes its outermost cells
// to the neighbour's halo, and then the number of the iteration:
//
//   - Rows are contiguous: Peer.PutSignal writes data and number in one operation.
//   - Columns are not: Peer.PutStrided takes one cell of each row. A Peer.Signal after it
//     becomes visible after it, because puts and signals of one goroutine to one peer
//     become visible in the order of the calls.
//   - Peer.WaitSignal waits for the number; it polls first, then sleeps. The method of
//     Peer, not that of Engine, fails if the neighbour dies.
//
// There are no receives, no matching and no barrier in the loop: a rank continues as soon
// as its own neighbours have written (halo.go explains why two planes are enough). The
// transfers overlap with the computation of the inner cells.
//
// All ranks allocate their memory together (Engine.Window), so that the address of a halo
// is a rank and an offset, computed from the sizes, and no keys are exchanged. At the end
// every rank contributes its largest change by Accumulate, and with -check writes its tile
// into the whole grid on rank 0 by one PutStrided.
//
// # Experiments
//
// The time of an iteration is the time of computing a rank's cells while that is longer
// than the exchange of a halo: try -n 64 with one rank and with several, over shm and with
// RMA_FABRIC=tcp. More ranks than processors bring no speed-up.
//
// # Files
//
//	tile.go    the division of the grid, and the layout of a tile
//	halo.go    one iteration: wait, compute, send
//	jacobi.go  the arithmetic, and the serial computation
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
	n, iters int
	check    bool
}

func main() {
	var o options
	flag.IntVar(&o.n, "n", 512, "rows and columns of the grid")
	flag.IntVar(&o.iters, "iters", 200, "iterations")
	flag.BoolVar(&o.check, "check", false, "compare the result with a serial computation by rank 0")
	command.Main(func(ctx context.Context) error { return run(ctx, o) })
}

func run(ctx context.Context, o options) error {
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer eng.Close()
	rows, cols := processGrid(eng.Size())
	if o.n < max(rows, cols) || o.iters < 1 {
		return fmt.Errorf("want at least %d cells per side for %d x %d ranks, and one iteration", max(rows, cols), rows, cols)
	}
	t := tileOf(o.n, eng.Size(), eng.Rank())
	size := t.bytes()
	if o.check && eng.Rank() == 0 {
		size += cell * o.n * o.n // sizes of windows may differ
	}
	win, err := eng.Window(ctx, size)
	if err != nil {
		return err
	}
	w, err := newWorker(eng, win, t)
	if err != nil {
		return err
	}
	if err := eng.Barrier(ctx); err != nil { // all planes are ready to be written to
		return err
	}
	start := time.Now()
	change := 0.0
	for k := 1; k <= o.iters; k++ {
		if change, err = w.step(ctx, k); err != nil {
			return err
		}
	}
	if err := eng.Barrier(ctx); err != nil {
		return err
	}
	took := time.Since(start)
	first := eng.Peer(0)
	err = rma.Accumulate(first, win.At(0, residualAt), rma.Max, []float64{change}).Wait(ctx)
	if err == nil && o.check {
		err = w.deliver(ctx, o.iters%2)
	}
	if err == nil {
		err = eng.Barrier(ctx) // all ranks have delivered
	}
	if err != nil {
		return err
	}
	if eng.Rank() == 0 {
		cells := float64(o.n) * float64(o.n) * float64(o.iters)
		fmt.Printf("%d x %d cells on %d x %d ranks over %s: %d iterations in %.2f s, %.0f million cells a second\n",
			o.n, o.n, rows, cols, eng.Peer(eng.Size()-1).Link(), o.iters, took.Seconds(), cells/took.Seconds()/1e6)
		if err := w.report(o); err != nil {
			return err
		}
	}
	return win.Free(ctx)
}

// deliver writes this rank's tile into the whole grid, behind the planes of rank 0.
func (w *worker) deliver(ctx context.Context, plane int) error {
	first := tileOf(w.n, w.eng.Size(), 0)
	src := w.win.Slice(w.at(plane, 1, 1), cell*((w.rows-1)*w.stride()+w.cols))
	dst := w.win.At(0, first.bytes()+cell*(w.row0*w.n+w.col0))
	return w.eng.Peer(0).PutStrided(dst, src, rma.Shape2D(w.rows, cell*w.cols, cell*w.stride(), cell*w.n)).Wait(ctx)
}

// report prints what rank 0 has received from all ranks, and checks it.
func (w *worker) report(o options) error {
	change, err := rma.View[float64](w.win.Slice(residualAt, 8))
	if err != nil {
		return err
	}
	fmt.Printf("largest change of the last iteration: %.4g\n", change[0])
	if !o.check {
		return nil
	}
	got, err := rma.View[float64](w.win.Slice(w.bytes(), cell*o.n*o.n))
	if err != nil {
		return err
	}
	want, last := serial(o.n, o.iters)
	for i := range want {
		if math.Float64bits(got[i]) != math.Float64bits(want[i]) {
			return fmt.Errorf("cell %d, %d is %v, computed serially %v", i/o.n, i%o.n, got[i], want[i])
		}
	}
	if change[0] != last {
		return fmt.Errorf("the largest change is %v, computed serially %v", change[0], last)
	}
	fmt.Println("equal to the serial computation, bit for bit")
	return nil
}

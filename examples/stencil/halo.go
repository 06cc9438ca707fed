package main

import (
	"context"

	"github.com/seed33544411/rma"
)

// worker is a rank at work.
type worker struct {
	tile
	eng    *rma.Engine
	win    *rma.Window
	tiles  [sides]tile // the neighbours'
	planes [2][]float64
	sent   [2][]rma.Request // puts that still read a plane
}

func newWorker(eng *rma.Engine, win *rma.Window, t tile) (*worker, error) {
	w := &worker{tile: t, eng: eng, win: win}
	for i := range w.planes {
		var err error
		if w.planes[i], err = rma.View[float64](win.Slice(t.at(i, 0, 0), t.planeBytes())); err != nil {
			return nil, err
		}
		if t.row0 == 0 {
			heat(w.planes[i], t.stride())
		}
	}
	for s, rank := range t.neighbour {
		if rank != none {
			w.tiles[s] = tileOf(t.n, eng.Size(), rank)
		}
	}
	return w, nil
}

// step is iteration k, from plane (k-1) mod 2 to plane k mod 2.
//
// The outermost own cells come first: their values travel to the neighbours while
// the inner ones are computed. There is no barrier. A neighbour may be one iteration
// ahead, and then writes to the halo of the plane that the inner cells are being
// computed from; but those do not look at the halo. It cannot be two ahead, because it
// waits for what this rank sends after that.
func (w *worker) step(ctx context.Context, k int) (change float64, err error) {
	if err := w.await(ctx, k-1); err != nil {
		return 0, err
	}
	plane := k % 2
	// The puts of iteration k-2 read from the plane that is written now.
	if err := rma.WaitAll(ctx, w.sent[plane]...); err != nil {
		return 0, err
	}
	w.sent[plane] = w.sent[plane][:0]
	to, from, stride := w.planes[plane], w.planes[1-plane], w.stride()
	ring := [4][4]int{
		{1, 2, 1, w.cols + 1}, {w.rows, w.rows + 1, 1, w.cols + 1},
		{1, w.rows + 1, 1, 2}, {1, w.rows + 1, w.cols, w.cols + 1},
	}
	for _, r := range ring {
		change = max(change, relax(to, from, stride, r[0], r[1], r[2], r[3]))
	}
	for s := range sides {
		if w.neighbour[s] != none {
			w.send(s, plane, uint64(k))
		}
	}
	return max(change, relax(to, from, stride, 2, w.rows, 2, w.cols)), nil
}

// await waits until all halos of iteration k are here. Each neighbour changes a
// word of its own; the wait fails if one dies.
func (w *worker) await(ctx context.Context, k int) error {
	for s, rank := range w.neighbour {
		if rank == none {
			continue
		}
		if _, err := w.eng.Peer(rank).WaitSignal(ctx, w.win.Slice(8*s, 8), rma.GE, uint64(k)); err != nil {
			return err
		}
	}
	return nil
}

// send writes the outermost cells of that side into the neighbour's halo, and then
// the number of the iteration into the neighbour's word for this side.
func (w *worker) send(s side, plane int, k uint64) {
	rank, there := w.neighbour[s], &w.tiles[s]
	p := w.eng.Peer(rank)
	word := w.win.At(rank, 8*int(s.opposite()))
	at := func(off int) rma.Remote { return w.win.At(rank, off) }
	var req rma.Request
	switch s {
	case up, down: // a row is contiguous: data and signal are one operation
		mine, theirs := 1, there.rows+1
		if s == down {
			mine, theirs = w.rows, 0
		}
		src := w.win.Slice(w.at(plane, mine, 1), cell*w.cols)
		req = p.PutSignal(at(there.at(plane, theirs, 1)), src, word, rma.SignalSet, k)
	default: // a column: runs of one cell; later operations to a peer are visible later
		mine, theirs := 1, there.cols+1
		if s == right {
			mine, theirs = w.cols, 0
		}
		src := w.win.Slice(w.at(plane, 1, mine), cell*((w.rows-1)*w.stride()+1))
		shape := rma.Shape2D(w.rows, cell, cell*w.stride(), cell*there.stride())
		w.sent[plane] = append(w.sent[plane], p.PutStrided(at(there.at(plane, 1, theirs)), src, shape))
		req = p.Signal(word, rma.SignalSet, k)
	}
	w.sent[plane] = append(w.sent[plane], req)
}

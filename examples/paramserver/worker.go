package main

import (
	"context"
	"errors"

	"github.com/seed33544411/rma"
)

// fetch is the parameters as a rank has last seen them.
type fetch[T number] struct {
	eng  *rma.Engine
	win  *rma.Window
	p    place
	mem  *rma.Region
	view []T
	reqs []rma.Request
}

func newFetch[T number](eng *rma.Engine, win *rma.Window, p place) (*fetch[T], error) {
	mem, err := eng.Alloc(sizeOf[T]() * p.params)
	if err != nil {
		return nil, err
	}
	view, err := rma.View[T](mem.Slice(0, sizeOf[T]()*p.params))
	if err != nil {
		return nil, errors.Join(err, mem.Close())
	}
	return &fetch[T]{eng: eng, win: win, p: p, mem: mem, view: view, reqs: make([]rma.Request, p.servers)}, nil
}

// all fetches all parts at once. The slice is good until the next call, or close.
func (f *fetch[T]) all(ctx context.Context) ([]T, error) {
	size := sizeOf[T]()
	for s := range f.reqs {
		from, n := f.p.part(s)
		f.reqs[s] = f.eng.Peer(s).Get(f.mem.Slice(size*from, size*n), f.p.remote(f.win, s))
	}
	return f.view, rma.WaitAll(ctx, f.reqs...)
}

func (f *fetch[T]) close() error { return f.mem.Close() }

// worker is a rank that computes.
type worker[T number] struct {
	fetch *fetch[T]
	data  *data[T]
	batch int
	rate  float64
	steps [2]sent[T]
}

// sent is a step that is being added to the parameters.
type sent[T number] struct {
	step []T
	reqs []rma.Request // one per server
}

func newWorker[T number](eng *rma.Engine, win *rma.Window, p place, batch int) (*worker[T], error) {
	f, err := newFetch[T](eng, win, p)
	if err != nil {
		return nil, err
	}
	w := &worker[T]{
		fetch: f, data: generate[T](p.params, eng.Rank()),
		batch: batch, rate: rateOf(p.params, batch, p.workers()),
	}
	for i := range w.steps {
		w.steps[i] = sent[T]{make([]T, p.params), make([]rma.Request, p.servers)}
	}
	return w, nil
}

// run takes steps, then adds their number on all servers.
func (w *worker[T]) run(ctx context.Context, steps int) error {
	for k := range steps {
		if err := w.step(ctx, &w.steps[k%2]); err != nil {
			return err
		}
	}
	for i := range w.steps {
		if err := rma.WaitAll(ctx, w.steps[i].reqs...); err != nil {
			return err
		}
	}
	f := w.fetch
	for s := range f.reqs {
		f.reqs[s] = f.eng.Peer(s).Signal(f.p.word(f.win, s, f.eng.Rank()), rma.SignalSet, uint64(steps))
	}
	return errors.Join(rma.WaitAll(ctx, f.reqs...), f.close())
}

// step fetches the parameters, computes a step from them, and posts its addition. It waits
// only for the step before last, whose memory this one uses.
func (w *worker[T]) step(ctx context.Context, s *sent[T]) error {
	at, err := w.fetch.all(ctx)
	if err != nil {
		return err
	}
	if err := rma.WaitAll(ctx, s.reqs...); err != nil {
		return err
	}
	w.data.descend(s.step, at, w.batch, w.rate)
	f := w.fetch
	for i := range s.reqs {
		from, n := f.p.part(i)
		s.reqs[i] = rma.Accumulate(f.eng.Peer(i), f.p.remote(f.win, i), rma.Sum, s.step[from:from+n])
	}
	return nil
}

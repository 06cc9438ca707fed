package session

import (
	"context"
	"errors"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/bench"
)

// LocalPairs is Local for several pairs of processes at once, with the same request. All
// pairs begin every point together. emit gets the results of all pairs for a point.
func LocalPairs(ctx context.Context, req bench.Request, pairs int, stderr io.Writer, emit func([]bench.Result) error) (err error) {
	if pairs <= 1 {
		return Local(ctx, req, stderr, func(r bench.Result) error { return emit([]bench.Result{r}) })
	}
	gate, err := bench.OpenGate(pairs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gate.Close()) }()
	req.Ranks, req.Gate = 2*pairs, gate.Path()
	stderr = &together{w: stderr}
	all := make([][]bench.Result, pairs)
	g, gctx := errgroup.WithContext(ctx)
	for i := range all {
		g.Go(func() error {
			return Local(gctx, req, stderr, func(r bench.Result) error {
				all[i] = append(all[i], r)
				return nil
			})
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	point := make([]bench.Result, pairs)
	for k := range all[0] { // Local has checked that all results are there
		for i := range all {
			point[i] = all[i][k]
		}
		if err := emit(point); err != nil {
			return err
		}
	}
	return nil
}

// together is a writer that several goroutines may use.
type together struct {
	mu sync.Mutex
	w  io.Writer
}

func (t *together) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.w.Write(b)
}

package overlap

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/seed33544411/rma"
)

// ReactivityOps are the operations of Reactivity, all from rank 0 to rank 1: a get and a
// fetch-and-add of 8 bytes, a message of 8 bytes that a handler answers, and one of 1 MiB,
// which a rendezvous transfers before a handler answers it.
var ReactivityOps = []string{"get", "fetch-add", "handler", "rendezvous"}

const (
	tagAsk    = 2 // of messages to a handler
	tagAnswer = 3

	large  = 1 << 20
	fewest = 20 // least number of samples, even if they take longer than a series should

	mostSamples = 1 << 20
)

// reactivity measures latencies on a target that computes on goroutines that never block.
func (p *pair) reactivity(ctx context.Context, req *Request, round int, emit func(Result) error) (err error) {
	win, err := p.eng.Window(ctx, large)
	if err != nil {
		return err
	}
	answer := make([]byte, 8)
	h, err := p.eng.HandleWith(rma.HandlerOptions{Tag: tagAsk}, func(rma.Envelope, [][]byte) { p.peer.SendFunc(tagAnswer, answer, nil) })
	if err != nil {
		return err
	}
	defer h.Close()
	for _, r := range req.Cells() {
		r.Round = round
		once := p.once(ctx, r.Op, win)
		r.Slowed, err = p.target(ctx, r.Count*runtime.GOMAXPROCS(0), req.Time, func() error { return r.sample(req.Time, once) })
		if err != nil {
			return fmt.Errorf("%s, %d goroutines: %w", r.Op, r.Count, err)
		}
		if err := emit(r); err != nil {
			return err
		}
	}
	return win.Free(ctx)
}

// target computes on n goroutines of rank 1, for the time alone while rank 0 sleeps, and then while rank
// 0 runs measure. It returns, on rank 0, by how many percent the computation was slower then.
func (p *pair) target(ctx context.Context, n int, alone time.Duration, measure func() error) (slowed float64, err error) {
	if _, err := swap(ctx, p, 0); err != nil { // a barrier
		return 0, err
	}
	turn := func() error { _, err := swap(ctx, p, 0); return err }
	if p.first {
		if n > 0 {
			time.Sleep(alone) // sleep: of a peer that wants nothing
		}
		if err := errors.Join(turn(), measure(), turn()); err != nil {
			return 0, err
		}
		return swap(ctx, p, 0.0)
	}
	h := startHog(n, func() {})
	defer h.end()
	before, err := h.rate(turn)
	if err != nil {
		return 0, err
	}
	served, err := h.rate(turn)
	if err != nil {
		return 0, err
	}
	if before > 0 {
		slowed = 100 * (1 - served/before)
	}
	_, err = swap(ctx, p, slowed)
	return slowed, err
}

// once returns a function that performs one operation of rank 0.
func (p *pair) once(ctx context.Context, op string, win *rma.Window) func() error {
	buf, size := make([]byte, 8), 8
	switch op {
	case "get":
		return func() error { return p.peer.Get(win.Slice(0, 8), win.At(1, 0)).Wait(ctx) }
	case "fetch-add":
		return func() error { _, err := p.peer.FetchAdd(win.At(1, 8), 1).Wait(ctx); return err }
	case "rendezvous":
		size = large
	}
	return func() error {
		in := p.peer.RecvTag(tagAnswer, buf)
		out := p.peer.SendBuffer(tagAsk, win.Slice(0, size))
		if _, err := in.Wait(ctx); err != nil {
			return err
		}
		return out.Wait(ctx)
	}
}

// sample repeats f for d and fills in the latencies of r.
func (r *Result) sample(d time.Duration, f func() error) error {
	for range 5 { // warm-up
		if err := f(); err != nil {
			return err
		}
	}
	return r.samples(fewest, mostSamples, d, f)
}

// samples repeats f, each time after r.Gap, for d, but at least and at most so many times.
func (r *Result) samples(least, most int, d time.Duration, f func() error) error {
	var ds []float64
	gap := time.Duration(r.Gap * 1e3)
	sum := 0.0
	begun := time.Now()
	last := begun
	for len(ds) < most && (len(ds) < least || last.Sub(begun) < d) {
		if gap > 0 {
			time.Sleep(gap) // sleep: the measured program does something else than communicate
			last = time.Now()
		}
		if err := f(); err != nil {
			return err
		}
		now := time.Now()
		took := float64(now.Sub(last))
		ds, sum = append(ds, took), sum+took
		last = now
	}
	slices.Sort(ds)
	r.P50, r.P99, r.Max, r.Samples = ds[len(ds)/2]/1e3, ds[len(ds)*99/100]/1e3, ds[len(ds)-1]/1e3, len(ds)
	r.Mean = sum / 1e3 / float64(len(ds))
	return nil
}

package overlap

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma"
)

// ThreadsBeside are the activities of the other goroutines of a rank: they wait for signals
// or messages that never arrive, or send messages of 8 bytes, one after another.
var ThreadsBeside = []string{"signals", "messages", "sends"}

// besideOps are the operations that are measured beside others: a put of 8 bytes that rank 0
// waits for, and half of a ping-pong of 8 bytes with signals.
var besideOps = []string{"put", "ping"}

const (
	tagDrop   = 5      // of messages that are discarded
	tagSilent = 1 << 8 // first tag of messages that are never sent

	wordStride = 64
)

// threads measures one goroutine with others running on the same rank, on both ranks.
func (p *pair) threads(ctx context.Context, req *Request, round int, emit func(Result) error) error {
	win, err := p.eng.Window(ctx, wordStride*(slices.Max(req.Counts)+4))
	if err != nil {
		return err
	}
	h, err := p.peer.Handle(tagDrop, func(rma.Envelope, [][]byte) {})
	if err != nil {
		return err
	}
	defer h.Close()
	for _, r := range req.Cells() {
		r.Round = round
		end := p.background(ctx, r.Count, func(ctx context.Context, i int) error { return p.other(ctx, r.Beside, win, i) })
		if err := errors.Join(p.play(ctx, req, &r, win), end()); err != nil {
			return fmt.Errorf("%s beside %d of %s: %w", r.Op, r.Count, r.Beside, err)
		}
		if err := emit(r); err != nil {
			return err
		}
	}
	return win.Free(ctx)
}

// background runs f on n goroutines until the returned function is called, which ends their context
// and returns the first of their errors.
func (p *pair) background(ctx context.Context, n int, f func(ctx context.Context, i int) error) (end func() error) {
	ctx, cancel := context.WithCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	for i := range n {
		g.Go(func() error { return f(ctx, i) })
	}
	return func() error {
		cancel()
		if err := g.Wait(); !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}
}

// other is one of the other goroutines.
func (p *pair) other(ctx context.Context, what string, win *rma.Window, i int) (err error) {
	msg := make([]byte, 8)
	switch what {
	case "signals":
		_, err = p.eng.WaitSignal(ctx, win.Slice((4+i)*wordStride, 8), rma.NE, 0)
	case "messages":
		r := p.peer.RecvTag(tagSilent+uint32(i), msg)
		if _, err = r.Wait(ctx); err != nil {
			r.Cancel()
			_, _ = r.Wait(context.WithoutCancel(ctx)) // the engine owns msg until then
		}
	default:
		for err = ctx.Err(); err == nil; err = ctx.Err() {
			if err := p.peer.SendTag(tagDrop, msg).Wait(context.WithoutCancel(ctx)); err != nil {
				return err
			}
		}
	}
	return err
}

// Words of the window: the one that the peer sets, its source, and the end of a series.
const (
	offWord = 0
	offMine = wordStride
	offOver = 2 * wordStride
)

// play is the measured goroutine, which starts when the other rank's does. Rank 1 answers until rank 0 ends the series.
func (p *pair) play(ctx context.Context, req *Request, r *Result, win *rma.Window) error {
	if _, err := swap(ctx, p, 0); err != nil {
		return err
	}
	mine, there := win.Slice(offMine, 8), win.At(1-p.eng.Rank(), offWord)
	if r.Op == "put" {
		if p.first {
			put := func() error { return p.peer.Put(win.At(1, offOver), mine).Wait(ctx) }
			if err := r.sample(req.Time, put); err != nil {
				return err
			}
		}
		_, err := swap(ctx, p, 0)
		return err
	}
	return p.pings(ctx, req, r, win, func(n uint64) rma.Request { return p.peer.Signal(there, rma.SignalSet, n) })
}

// pings measures half of a ping-pong of send, which sets the peer's word to n.
func (p *pair) pings(ctx context.Context, req *Request, r *Result, win *rma.Window, send func(n uint64) rma.Request) error {
	there, word, n := win.At(1-p.eng.Rank(), offWord), win.Slice(offWord, 8), uint64(0)
	over := uint64(1) << 63
	if p.first {
		err := r.sample(req.Time, func() error {
			n++
			if err := send(n).Wait(ctx); err != nil {
				return err
			}
			_, err := p.peer.WaitSignal(ctx, word, rma.EQ, n)
			return err
		})
		if err == nil {
			err = p.peer.Signal(there, rma.SignalSet, over).Wait(ctx)
		}
		r.Mean, r.P50, r.P99, r.Max = r.Mean/2, r.P50/2, r.P99/2, r.Max/2
		if err != nil {
			return err
		}
	} else {
		for {
			got, err := p.peer.WaitSignal(ctx, word, rma.GT, n)
			if err != nil {
				return err
			}
			if got == over {
				break
			}
			n = got
			if err := send(n).Wait(ctx); err != nil {
				return err
			}
		}
	}
	if _, err := swap(ctx, p, 0); err != nil {
		return err
	}
	if err := p.peer.Signal(there, rma.SignalSet, 0).Wait(ctx); err != nil { // for the next series
		return err
	}
	_, err := swap(ctx, p, 0)
	return err
}

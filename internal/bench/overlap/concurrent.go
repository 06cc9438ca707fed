package overlap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma"
)

// Streams are the operations of streams beside a measured operation: messages that a handler of
// rank 1 discards, puts into one place of rank 1's memory, gets from there. Each stream is a
// goroutine of rank 0 that waits for one operation before it starts the next.
var Streams = []string{"messages", "puts", "gets"}

// concurrent measures small operations beside streams from or to rank 0, and the bandwidth of the
// streams meanwhile.
func concurrent(ctx context.Context, p *pair, req *Request, round int, emit func(Result) error) error {
	const place = 4 * wordStride
	most := slices.Max(req.Sizes)
	win, err := p.eng.Window(ctx, place+most)
	if err != nil {
		return err
	}
	mem, err := p.eng.Alloc(most * slices.Max(append(req.Counts, 1))) // a buffer for each stream
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
		if err := besideStreams(ctx, p, req, &r, win, func(i int) func() rma.Request {
			return stream(p.peer, r.Beside, win.At(1, place), mem.Slice(i*most, r.Size))
		}); err != nil {
			return fmt.Errorf("%s beside %d streams of %s of %d bytes: %w", r.Op, r.Count, r.Beside, r.Size, err)
		}
		if err := emit(r); err != nil {
			return err
		}
	}
	if err := win.Free(ctx); err != nil {
		return err
	}
	return mem.Close()
}

// besideStreams measures r.Op while rank 0 runs the streams, each of which has completed an
// operation before.
func besideStreams(ctx context.Context, p *pair, req *Request, r *Result, win *rma.Window, stream func(i int) func() rma.Request) error {
	streams := 0
	if p.first {
		streams = r.Count
	}
	var moved atomic.Int64
	var first sync.WaitGroup
	first.Add(streams)
	end := p.background(ctx, streams, func(ctx context.Context, i int) error {
		start := stream(i)
		err := start().Wait(context.WithoutCancel(ctx))
		for first.Done(); err == nil && ctx.Err() == nil; {
			err = start().Wait(context.WithoutCancel(ctx))
			moved.Add(int64(r.Size))
		}
		return err
	})
	first.Wait()
	begun := time.Now()
	err := p.play(ctx, req, r, win)
	r.MBs = float64(moved.Load()) / time.Since(begun).Seconds() / 1e6
	return errors.Join(err, end())
}

// stream returns a function that starts an operation of a stream.
func stream(peer *rma.Peer, what string, there rma.Remote, mine rma.Buffer) func() rma.Request {
	switch what {
	case "messages":
		return func() rma.Request { return peer.SendBuffer(tagDrop, mine) }
	case "puts":
		return func() rma.Request { return peer.Put(there, mine) }
	}
	return func() rma.Request { return peer.Get(mine, there) }
}

package bench

import (
	"context"
	"fmt"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/cpu"
)

// The two sides of a pair in a phase of n operations, as an application would write
// them. The first half of the ranks are origins.

// lookBefore is how often a word is read before the engine is polled: on a link
// without system calls the answer has arrived within these reads.
const lookBefore = 64

// await spins until the word that the peer writes is seq.
func (s *engineSide) await(ctx context.Context, seq uint64) error {
	word := cellAt(s.win.Bytes(), offWord)
	var since int64
	s.w.Reset()
	for i := 0; word.load() != seq; i++ {
		if i < lookBefore {
			cpu.Pause() // reads without one delay the store that they wait for
			continue
		}
		if s.eng.Progress() {
			continue
		}
		if y := s.w.Wait(); y&63 != 1 {
			continue
		}
		now := cpu.Ticks()
		switch {
		case since == 0:
			since = now
		case now-since > s.stall:
			return fmt.Errorf("%w for %v", ErrStalled, cpu.Duration(now-since))
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
	return nil
}

// put writes message seq to the other side. A message of eight bytes is the polled word
// itself; for other sizes a signal changes the word after the data.
func (s *engineSide) put(seq uint64) rma.Request {
	mem := s.win.Bytes()
	if s.size == 8 {
		cellAt(mem, offWordOut).store(seq)
		return s.peer.Put(s.win.At(s.other, offWord), s.win.Slice(offWordOut, 8))
	}
	return s.peer.PutSignal(s.win.At(s.other, offIn), s.win.Slice(offIn+s.span, s.size), s.win.At(s.other, offWord), rma.SignalSet, seq)
}

// putPing is a ping-pong of puts: each side puts as soon as it sees the other's put.
func (s *engineSide) putPing(ctx context.Context, n int64, rec *recorder) error {
	last := cpu.Ticks()
	for range n {
		s.seq++
		var r rma.Request
		if s.origin {
			r = s.put(s.seq)
		}
		if err := s.await(ctx, s.seq); err != nil {
			return err
		}
		if !s.origin {
			r = s.put(s.seq)
		} else if rec != nil {
			last = rec.lap(last, cpu.Ticks())
		}
		if err := r.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// putStream puts n times to the same place, with a window of puts in flight, until all
// data is in the target's memory. The target waits for the end, so that its meter spans
// the stream.
func (s *engineSide) putStream(ctx context.Context, n int64, _ *recorder) error {
	if !s.origin {
		_, err := s.hear(ctx, engineOver)
		return err
	}
	to, from := s.win.At(s.other, offIn), s.win.Slice(offIn+s.span, s.size)
	for i := range n {
		r := &s.reqs[i%int64(s.window)]
		if i >= int64(s.window) {
			if err := r.Wait(ctx); err != nil {
				return err
			}
		}
		*r = s.peer.Put(to, from)
	}
	if err := s.settle(ctx, n); err != nil {
		return err
	}
	return s.tell(ctx, engineOver, n)
}

// settle waits for the remaining requests of the window.
func (s *engineSide) settle(ctx context.Context, n int64) error {
	return rma.WaitAll(ctx, s.reqs[:min(n, int64(s.window))]...)
}

// sendPing is a ping-pong of messages; each receive is posted before the message that
// it answers is sent.
func (s *engineSide) sendPing(ctx context.Context, n int64, rec *recorder) error {
	in, out := s.win.Slice(offIn, s.size), s.win.Slice(offIn+s.span, s.size)
	last := cpu.Ticks()
	for range n {
		r := s.peer.RecvBuffer(0, in)
		if !s.origin {
			if err := s.received(ctx, r); err != nil {
				return err
			}
		}
		q := s.peer.SendBuffer(0, out)
		if s.origin {
			if err := s.received(ctx, r); err != nil {
				return err
			}
			if rec != nil {
				last = rec.lap(last, cpu.Ticks())
			}
		}
		if err := q.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *engineSide) received(ctx context.Context, r rma.RecvRequest) error {
	n, err := r.Wait(ctx)
	if err == nil && n != s.size {
		err = fmt.Errorf("%w: a message of %d bytes, want %d", ErrValidate, n, s.size)
	}
	return err
}

// sendStream sends n messages with a window of them in flight; the target keeps as many
// receives posted. All messages use the same buffer, as in other libraries' benchmarks.
func (s *engineSide) sendStream(ctx context.Context, n int64, _ *recorder) error {
	in, out := s.win.Slice(offIn, s.size), s.win.Slice(offIn+s.span, s.size)
	w := int64(s.window)
	switch {
	case s.origin && s.batch > 1:
		return s.batchStream(ctx, n, out)
	case s.origin:
		for i := range n {
			r := &s.reqs[i%w]
			if i >= w {
				if err := r.Wait(ctx); err != nil {
					return err
				}
			}
			*r = s.peer.SendBuffer(0, out)
		}
		return s.settle(ctx, n)
	case s.batch > 1 && s.size <= bulkSize:
		return s.bulkStream(ctx, n)
	}
	for i := range min(n, w) {
		s.recvs[i] = s.peer.RecvBuffer(0, in)
	}
	for i := range n {
		r := &s.recvs[i%w]
		if err := s.received(ctx, *r); err != nil {
			return err
		}
		if i+w < n {
			*r = s.peer.RecvBuffer(0, in)
		}
	}
	return nil
}

// batchStream is the origin's part of sendStream for messages posted in batches. n is a
// multiple of the batch.
func (s *engineSide) batchStream(ctx context.Context, n int64, out rma.Buffer) error {
	batches := make([]*rma.Batch, s.window/s.batch)
	for i := range batches {
		batches[i] = s.peer.Batch()
	}
	count, w := n/int64(s.batch), int64(len(batches))
	for i := range count {
		r, b := &s.reqs[i%w], batches[i%w]
		if i >= w {
			if err := r.Wait(ctx); err != nil {
				return err
			}
			b.Reset()
		}
		for range s.batch {
			b.AddBuffer(0, out)
		}
		*r = b.Send()
	}
	return s.settle(ctx, min(count, w))
}

// bulkSize is the size of the longest messages that are received in bulk: these go through
// the ring, whatever memory they are received into.
const bulkSize = 4096

// bulkStream is the target's part of sendStream for messages posted in batches: it
// receives a batch at once.
func (s *engineSide) bulkStream(ctx context.Context, n int64) error {
	in := s.win.Bytes()[offIn:][:s.size]
	batches := make([]rma.RecvBatch, s.window/s.batch)
	count, w := n/int64(s.batch), int64(len(batches))
	for i := range min(count, w) {
		for range s.batch {
			batches[i].Add(0, in)
		}
		s.reqs[i] = batches[i].Recv(s.peer)
	}
	for i := range count {
		r, b := &s.reqs[i%w], &batches[i%w]
		if err := r.Wait(ctx); err != nil {
			return err
		}
		for k := range b.Len() {
			if m, _ := b.Got(k); m.Len != s.size {
				return fmt.Errorf("%w: a message of %d bytes, want %d", ErrValidate, m.Len, s.size)
			}
		}
		if i+w < count {
			*r = b.Recv(s.peer)
		}
	}
	return nil
}

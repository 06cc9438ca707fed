package main

import (
	"context"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/examples/nas/internal/nas"
)

// shared is a vector in a window of every rank. Each rank computes its own part of it, and
// writes that into the windows of the others. A word for each rank counts what it has written.
type shared struct {
	c     *nas.Comm
	win   *rma.Window
	all   []float64 // the whole vector
	own   []float64 // this rank's part of it
	part  rma.Buffer
	at    int // of the part, in every window
	turn  uint64
	sends []rma.Request
}

const word = 8 // bytes of an element, and of a signal

func newShared(ctx context.Context, c *nas.Comm, n int) (*shared, error) {
	words := c.Size()
	win, err := c.Engine().Window(ctx, word*(words+n))
	if err != nil {
		return nil, err
	}
	s := &shared{c: c, win: win}
	from, to := c.Share(n)
	s.at = word * (words + from)
	s.part = win.Slice(s.at, word*(to-from))
	if s.all, err = rma.View[float64](win.Slice(word*words, word*n)); err != nil {
		return nil, err
	}
	s.own = s.all[from:to]
	return s, nil
}

// spread writes this rank's part to all ranks, and returns when theirs are here. Between two
// calls the ranks must have met, as in the sum of a dot product: then no rank reads the vector
// any more when another one writes its next part.
func (s *shared) spread(ctx context.Context) error {
	defer s.c.Communicated(time.Now())
	s.turn++
	n, me := s.c.Size(), s.c.Rank()
	s.sends = s.sends[:0]
	for k := 1; k < n; k++ {
		to := (me + k) % n // the next rank first, so that not all begin with the same
		req := s.c.Engine().Peer(to).PutSignal(s.win.At(to, s.at), s.part, s.win.At(to, word*me), rma.SignalSet, s.turn)
		s.sends = append(s.sends, req)
	}
	for k := 1; k < n; k++ {
		from := (me + n - k) % n
		if _, err := s.c.Engine().Peer(from).WaitSignal(ctx, s.win.Slice(word*from, word), rma.GE, s.turn); err != nil {
			return err
		}
	}
	return rma.WaitAll(ctx, s.sends...) // the part may change
}

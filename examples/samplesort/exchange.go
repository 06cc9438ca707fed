package main

import (
	"context"

	"github.com/seed33544411/rma"
)

// allGather gives every rank the numbers of all, at most limit from each: every rank
// writes its own into the tables of all others.
func (s *sorter) allGather(ctx context.Context, mine []uint64, limit int) (all [][]uint64, err error) {
	me, n := s.eng.Rank(), s.eng.Size()
	slot := 8 * (limit + 1) // the first word is their number
	win, err := s.eng.Window(ctx, n*slot)
	if err != nil {
		return nil, err
	}
	line := append([]uint64{uint64(len(mine))}, mine...)
	for k := range n {
		to := (me + k) % n
		s.eng.Peer(to).PutBytes(win.At(to, me*slot), rma.Bytes(line)).Forget()
	}
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	table, err := rma.View[uint64](win.Slice(0, n*slot))
	if err != nil {
		return nil, err
	}
	for r := range n {
		row := table[r*(limit+1):]
		all = append(all, append([]uint64(nil), row[1:1+row[0]]...))
	}
	return all, win.Free(ctx)
}

// settle returns when what all ranks have put is where it belongs: first what this one
// has, then, by the barrier, the others'.
func (s *sorter) settle(ctx context.Context) error {
	if err := s.eng.FlushAll(ctx); err != nil {
		return err
	}
	return s.eng.Barrier(ctx)
}

// exchange sends the pieces of sorted, which end where ends says, to their ranks, and
// returns those that came here, in the order of the ranks that they are from.
func (s *sorter) exchange(ctx context.Context, sorted []uint64, ends []int) ([][]uint64, error) {
	me, n := s.eng.Rank(), s.eng.Size()
	for len(ends) < n { // there are no numbers
		ends = append(ends, len(sorted))
	}
	counts := make([]uint64, n)
	from := 0
	for r, end := range ends {
		counts[r] = uint64(end - from)
		from = end
	}
	matrix, err := s.allGather(ctx, counts, n)
	if err != nil {
		return nil, err
	}
	// starts[r] is where this rank's piece begins at rank r: behind those of lower ranks.
	starts := make([]uint64, n)
	share := uint64(0)
	for r := range n {
		for from := range me {
			starts[r] += matrix[from][r]
		}
		share += matrix[r][me]
	}
	win, err := s.eng.Window(ctx, int(8*max(share, 1)))
	if err != nil {
		return nil, err
	}
	for k := range n {
		to := (me + 1 + k) % n // the next rank first, so that ranks begin with different ones
		if counts[to] == 0 {
			continue
		}
		piece := sorted[uint64(ends[to])-counts[to] : ends[to]]
		s.eng.Peer(to).PutBytes(win.At(to, int(8*starts[to])), rma.Bytes(piece)).Forget()
		if to != me {
			s.puts++
		}
	}
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	all, err := rma.View[uint64](win.Slice(0, int(8*share)))
	if err != nil {
		return nil, err
	}
	all = append([]uint64(nil), all...) // the window is freed
	pieces := make([][]uint64, n)
	for r := range n {
		pieces[r], all = all[:matrix[r][me]], all[matrix[r][me]:]
	}
	return pieces, win.Free(ctx)
}

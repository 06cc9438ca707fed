package main

import (
	"context"

	"github.com/seed33544411/rma/examples/nas/internal/nas"
)

// rankOf returns how many keys are less than key, if key is in this rank's buckets.
func (s *sorter) rankOf(key int32) (rank int, mine bool) {
	v := int(key - s.low)
	if v < 0 || v >= len(s.upTo) {
		return 0, false
	}
	if v > 0 {
		rank = int(s.upTo[v-1])
	}
	return s.below + rank, true
}

// check compares the ranks of the test keys of this rank with those of the specification.
func (s *sorter) check(iteration int) {
	for i, key := range s.all[buckets:] {
		want := s.p.rank[i] + s.p.moves[i]*(iteration+s.p.shift[i])
		if rank, mine := s.rankOf(key); mine && rank == want {
			s.passed++
		}
	}
}

// verify places all keys by their ranks, and reports whether they are in order then, none is
// lost, and the ranks of the test keys were right in all iterations.
func (s *sorter) verify(ctx context.Context) (bool, error) {
	placed := make([]int32, len(s.mine))
	for i := range placed {
		placed[i] = -1
	}
	for _, k := range s.mine {
		at := &s.upTo[k-s.low]
		*at--
		placed[*at] = k
	}
	v := []int64{int64(s.passed), int64(len(placed)), 0}
	for i, k := range placed {
		if k < 0 || i > 0 && k < placed[i-1] {
			v[2]++
		}
	}
	ends := make([]int32, 3*s.c.Size())
	mine := []int32{int32(len(placed)), 0, 0}
	if len(placed) > 0 {
		mine[1], mine[2] = placed[0], placed[len(placed)-1]
	}
	if err := nas.Allgather(ctx, s.c, mine, ends); err != nil {
		return false, err
	}
	for last := int32(0); len(ends) > 0; ends = ends[3:] {
		if ends[0] == 0 {
			continue
		}
		if ends[1] < last {
			v[2]++
		}
		last = ends[2]
	}
	err := nas.Sum(ctx, s.c, v)
	return v[0] == tests*iterations && v[1] == int64(s.total) && v[2] == 0, err
}

package main

import (
	"cmp"
	"context"
	"slices"
	"sort"
)

// place is a number with where it comes from, which makes it unlike all others.
type place struct{ value, rank, index uint64 }

// words of a place in memory.
const words = 3

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.value, q.value), cmp.Compare(p.rank, q.rank), cmp.Compare(p.index, q.index))
}

// splitters are ranks-1 places that cut the numbers of all ranks into shares of about
// the same size, the same on every rank. With ranks regular samples of each rank no share is
// more than twice the mean (Shi, Schaeffer 1992).
func (s *sorter) splitters(ctx context.Context, sorted []uint64) ([]place, error) {
	n := s.eng.Size()
	var mine []uint64
	for i := range n {
		if len(sorted) == 0 {
			break // a rank without numbers has no say
		}
		at := i * len(sorted) / n
		mine = append(mine, sorted[at], uint64(s.eng.Rank()), uint64(at))
	}
	all, err := s.allGather(ctx, mine, words*n)
	if err != nil {
		return nil, err
	}
	var samples []place
	for _, theirs := range all {
		for i := 0; i+words <= len(theirs); i += words {
			samples = append(samples, place{theirs[i], theirs[i+1], theirs[i+2]})
		}
	}
	slices.SortFunc(samples, place.compare)
	var split []place
	for i := 1; i < n && len(samples) > 0; i++ {
		split = append(split, samples[i*len(samples)/n])
	}
	return split, nil
}

// cut returns where the piece of each rank ends in the sorted numbers: at the first that
// does not come before the splitter. Of equal numbers rank and index decide.
func cut(sorted []uint64, rank int, split []place) (ends []int) {
	for _, sp := range split {
		ends = append(ends, sort.Search(len(sorted), func(i int) bool {
			return place{sorted[i], uint64(rank), uint64(i)}.compare(sp) >= 0
		}))
	}
	return append(ends, len(sorted))
}

// merge makes one sorted run of several. Heads are compared pairwise, level by level,
// so that every number is moved log₂ of their count times.
func merge(runs [][]uint64) []uint64 {
	for len(runs) > 1 {
		var next [][]uint64
		for i := 0; i+1 < len(runs); i += 2 {
			next = append(next, merge2(runs[i], runs[i+1]))
		}
		if len(runs)%2 == 1 {
			next = append(next, runs[len(runs)-1])
		}
		runs = next
	}
	return runs[0]
}

func merge2(a, b []uint64) []uint64 {
	out := make([]uint64, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0] <= b[0] {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}

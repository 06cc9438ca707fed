package main

import (
	"context"
	"errors"
	"slices"
)

// sums tell one bag of numbers from another, with all likelihood: their count, their
// sum, and the sum of a hash of each.
type sums struct{ count, sum, hash uint64 }

func digest(v []uint64) (d sums) {
	for _, x := range v {
		d.count++
		d.sum += x
		x = (x ^ x>>32) * 0xd6e8feb86659fd93 // a mixing step of rrmxmx, M. Evans 2018
		d.hash += (x ^ x>>32) * 0xd6e8feb86659fd93
	}
	return d
}

// totals are what rank 0 reports.
type totals struct{ count, largest, puts uint64 }

// check compares what came out with what went in, on every rank.
func (s *sorter) check(ctx context.Context, before sums, got []uint64) (t totals, err error) {
	if !slices.IsSorted(got) {
		return t, errors.New("a share is not sorted")
	}
	after := digest(got)
	line := []uint64{before.count, before.sum, before.hash, after.count, after.sum, after.hash, s.puts, 0, 0}
	if len(got) > 0 {
		line[7], line[8] = got[0], got[len(got)-1]
	}
	all, err := s.allGather(ctx, line, len(line))
	if err != nil {
		return t, err
	}
	var in, out sums
	last := uint64(0)
	for _, l := range all {
		in = sums{in.count + l[0], in.sum + l[1], in.hash + l[2]}
		out = sums{out.count + l[3], out.sum + l[4], out.hash + l[5]}
		t.largest, t.puts = max(t.largest, l[3]), t.puts+l[6]
		if l[3] == 0 {
			continue
		}
		if l[7] < last {
			return t, errors.New("a share begins before the end of a lower rank's share")
		}
		last = l[8]
	}
	if in != out {
		return t, errors.New("the sorted numbers differ from the input")
	}
	t.count = in.count
	return t, nil
}

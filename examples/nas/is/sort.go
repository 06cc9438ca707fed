package main

import (
	"context"
	"fmt"

	"github.com/seed33544411/rma/examples/nas/internal/nas"
)

// buckets is how many there are: enough to divide the keys evenly among the ranks.
const (
	bucketBits = 10
	buckets    = 1 << bucketBits
)

// sorter is a rank at work.
type sorter struct {
	c     *nas.Comm
	p     problem
	total int // keys of all ranks
	first int // index of this rank's first key
	keys  []int32

	sizes    []int32   // of the buckets: this rank's; then of the tests, the key
	all      []int32   // the same, of all ranks
	sorted   []int32   // this rank's keys by bucket
	ends     []int32   // in sorted, of each bucket
	counts   []int32   // of keys to each rank, and from each
	to, from [][]int32 // those keys, in sorted and in mine
	mine     []int32   // keys of this rank's buckets, of all ranks
	below    int       // keys in buckets of lower ranks
	low      int32     // the least value of this rank's buckets
	upTo     []int32   // upTo[v]: keys of this rank's buckets up to low+v

	passed int // test keys whose rank was right, on this rank
}

func newSorter(c *nas.Comm, p problem) (*sorter, error) {
	n := c.Size()
	if n > buckets {
		return nil, fmt.Errorf("%d ranks: want at most %d", n, buckets)
	}
	s := &sorter{
		c: c, p: p, total: 1 << p.keys,
		sizes: make([]int32, buckets+tests), all: make([]int32, buckets+tests), ends: make([]int32, buckets),
		counts: make([]int32, 2*n), to: make([][]int32, n), from: make([][]int32, n),
	}
	first, end := c.Share(s.total)
	s.first, s.keys, s.sorted = first, make([]int32, end-first), make([]int32, end-first)
	x, scale := nas.Seed.Skip(4*int64(first)), float64(int32(1)<<p.bits/4)
	for i := range s.keys {
		sum := x.Next()
		for range 3 {
			sum += x.Next()
		}
		s.keys[i] = int32(scale * sum)
	}
	return s, nil
}

// change sets the key of that index, if it is this rank's.
func (s *sorter) change(index, key int) {
	if i := index - s.first; i >= 0 && i < len(s.keys) {
		s.keys[i] = int32(key)
	}
}

// iterate changes two keys and ranks all.
func (s *sorter) iterate(ctx context.Context, iteration int) error {
	s.change(iteration, iteration)
	s.change(iteration+iterations, 1<<s.p.bits-iteration)
	shift := s.p.bits - bucketBits

	clear(s.sizes)
	for _, k := range s.keys {
		s.sizes[k>>shift]++
	}
	for i, at := range s.p.where {
		if at -= s.first; at >= 0 && at < len(s.keys) {
			s.sizes[buckets+i] = s.keys[at]
		}
	}
	copy(s.all, s.sizes)
	if err := nas.Sum(ctx, s.c, s.all); err != nil {
		return err
	}
	end := int32(0)
	for b, n := range s.sizes[:buckets] {
		s.ends[b] = end
		end += n
	}
	for _, k := range s.keys {
		b := k >> shift
		s.sorted[s.ends[b]] = k
		s.ends[b]++
	}
	first, last := s.divide()
	if err := s.exchange(ctx); err != nil {
		return err
	}
	s.low = int32(first) << shift
	s.count((last - first) << shift)
	s.check(iteration)
	return nil
}

// divide gives every rank consecutive buckets, with about the same number of keys, and
// returns those of this rank, [first, last). It sets what goes to each rank.
func (s *sorter) divide() (first, last int) {
	n, me := len(s.to), s.c.Rank()
	b, passed := 0, 0
	for r := range n {
		if r == me {
			first, s.below = b, passed
		}
		s.counts[r] = 0
		for b < buckets && (passed < s.total/n*(r+1) || r == n-1) {
			passed += int(s.all[b])
			s.counts[r] += s.sizes[b]
			b++
		}
		if r == me {
			last = b
		}
	}
	return first, last
}

// exchange moves the keys to the ranks of their buckets.
func (s *sorter) exchange(ctx context.Context) error {
	n := len(s.to)
	counts, coming := s.counts[:n], s.counts[n:]
	if err := nas.Alltoall(ctx, s.c, counts, coming); err != nil {
		return err
	}
	sum := 0
	for _, k := range coming {
		sum += int(k)
	}
	if cap(s.mine) < sum {
		s.mine = make([]int32, sum, sum+sum/8)
	}
	s.mine = s.mine[:sum]
	going, come := s.sorted, s.mine
	for r := range n {
		s.to[r], going = going[:counts[r]], going[counts[r]:]
		s.from[r], come = come[:coming[r]], come[coming[r]:]
	}
	return nas.Alltoallv(ctx, s.c, s.to, s.from)
}

// count counts this rank's keys by value, up to each of the values of its buckets. That is
// the rank of each key.
func (s *sorter) count(values int) {
	if cap(s.upTo) < values {
		s.upTo = make([]int32, values, 1<<s.p.bits)
	}
	s.upTo = s.upTo[:values]
	clear(s.upTo)
	for _, k := range s.mine {
		s.upTo[k-s.low]++
	}
	sum := int32(0)
	for v, n := range s.upTo {
		sum += n
		s.upTo[v] = sum
	}
}

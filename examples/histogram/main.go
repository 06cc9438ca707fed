// Command histogram counts values that are spread over all ranks in buckets that are
// spread over all ranks, in two ways: by one atomic per value, and by one accumulate per rank.
//
//	rmarun -n 4 go run ./examples/histogram -values 100000 -buckets 4096
//	mpirun -n 4 histogram; srun -n 4 histogram
//
//	400000 values of 4 ranks into 4096 buckets over shm
//	fetch-add a value:    0.149 s,    2.69 million values a second
//	accumulate a rank:    0.006 s,   70.99 million values a second, 26 times as fast
//	both equal to a serial count
//
// # What it shows
//
// The table is a window: bucket b is in the memory of rank b·ranks/buckets, and every rank
// counts in it. The applications of the owners take no part.
//
//   - Peer.FetchAdd suits counts that others need at once, or that arise one by one: tickets,
//     work queues, locks. Here many are in flight at a time. Their results, the values before
//     the addition, are not needed, so that Request.Forget releases each request, and
//     Engine.FlushAll waits for all of them at the end.
//   - Accumulate adds a slice to a slice, in one operation for all elements. A program that
//     can count locally first should do so: it needs a fraction of the operations. The
//     target's engine adds; its application may be computing.
//
// Every rank then reads the whole table by one Get from each owner, after FlushAll and a
// barrier: the barrier alone does not complete the operations that were posted before it.
//
// # Experiments
//
// The first way depends on the link (RMA_FABRIC=tcp), the second hardly does. With -skew
// few buckets get most of the counts, and atomics on one word are executed one by one.
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/examples/internal/command"
)

const most = 1 << 30 // values, or buckets

type options struct {
	values, buckets int
	skew            bool
}

func main() {
	var o options
	flag.IntVar(&o.values, "values", 100_000, "values per rank")
	flag.IntVar(&o.buckets, "buckets", 4096, "buckets")
	flag.BoolVar(&o.skew, "skew", false, "put most values into few buckets")
	command.Main(func(ctx context.Context) error { return run(ctx, o) })
}

func run(ctx context.Context, o options) error {
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer eng.Close()
	if o.values < 1 || o.buckets < eng.Size() || max(o.values, o.buckets) > most {
		return fmt.Errorf("want at least one value, and one bucket for each of %d ranks, and at most %d", eng.Size(), most)
	}
	mine := values(eng.Rank(), o)
	serial := make([]uint64, o.buckets)
	for r := range eng.Size() {
		for _, b := range values(r, o) {
			serial[b]++
		}
	}
	var took [2]time.Duration
	for i, count := range []func(context.Context, *table, []int) error{byFetchAdd, byAccumulate} {
		t, err := newTable(ctx, eng, o.buckets)
		if err != nil {
			return err
		}
		if err := eng.Barrier(ctx); err != nil {
			return err
		}
		start := time.Now()
		if err := count(ctx, t, mine); err != nil {
			return err
		}
		if err := eng.Barrier(ctx); err != nil { // all have counted
			return err
		}
		took[i] = time.Since(start)
		got, err := t.read(ctx)
		if err != nil {
			return err
		}
		for b := range serial {
			if got[b] != serial[b] {
				return fmt.Errorf("bucket %d holds %d, want %d", b, got[b], serial[b])
			}
		}
		if err := t.win.Free(ctx); err != nil {
			return err
		}
	}
	if eng.Rank() == 0 {
		n := float64(o.values * eng.Size())
		fmt.Printf("%d values of %d ranks into %d buckets over %s\n", int(n), eng.Size(), o.buckets, eng.Peer(eng.Size()-1).Link())
		fmt.Printf("fetch-add a value:  %7.3f s, %7.2f million values a second\n", took[0].Seconds(), n/took[0].Seconds()/1e6)
		fmt.Printf("accumulate a rank:  %7.3f s, %7.2f million values a second, %.0f times as fast\n",
			took[1].Seconds(), n/took[1].Seconds()/1e6, took[0].Seconds()/took[1].Seconds())
		fmt.Println("both equal to a serial count")
	}
	return eng.Barrier(ctx)
}

// values returns the values of a rank, as the buckets that they fall into.
func values(rank int, o options) []int {
	v := make([]int, o.values)
	x := uint64(rank)
	for i := range v {
		x += 0x9e3779b97f4a7c15 // SplitMix64, Steele, Lea, Flood 2014
		z := x
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		if o.skew {
			z &= z >> 32 // small numbers are more likely
			z &= z >> 16
			z &= 0xffff
		}
		v[i] = int(z % uint64(o.buckets))
	}
	return v
}

// byFetchAdd adds 1 to the bucket of each value.
func byFetchAdd(ctx context.Context, t *table, values []int) error {
	for _, b := range values {
		rank, at := t.place(b)
		t.eng.Peer(rank).FetchAdd(at, 1).Forget()
	}
	return t.eng.FlushAll(ctx)
}

// byAccumulate counts locally, and adds the counts to each owner's buckets.
func byAccumulate(ctx context.Context, t *table, values []int) error {
	counts := make([]uint64, t.buckets)
	for _, b := range values {
		counts[b]++
	}
	reqs := make([]rma.Request, t.eng.Size())
	for r := range reqs {
		from, to := t.owned(r)
		reqs[r] = rma.Accumulate(t.eng.Peer(r), t.win.At(r, 0), rma.Sum, counts[from:to])
	}
	return rma.WaitAll(ctx, reqs...)
}

// table holds the buckets of all ranks.
type table struct {
	eng     *rma.Engine
	win     *rma.Window
	buckets int
}

// newTable makes an empty table. It is collective.
func newTable(ctx context.Context, eng *rma.Engine, buckets int) (*table, error) {
	t := &table{eng: eng, buckets: buckets}
	from, to := t.owned(eng.Rank())
	var err error
	t.win, err = eng.Window(ctx, 8*(to-from))
	return t, err
}

// owned returns the buckets of a rank, from … to-1.
func (t *table) owned(rank int) (from, to int) { return owned(rank, t.buckets, t.eng.Size()) }

func owned(rank, buckets, ranks int) (from, to int) {
	return rank * buckets / ranks, (rank + 1) * buckets / ranks
}

// owner returns the last rank whose buckets do not begin behind this one:
// rank·buckets/ranks < bucket + 1.
func owner(bucket, buckets, ranks int) int { return ((bucket+1)*ranks - 1) / buckets }

// place returns the rank and the word of a bucket.
func (t *table) place(bucket int) (rank int, at rma.Remote) {
	rank = owner(bucket, t.buckets, t.eng.Size())
	from, _ := t.owned(rank)
	return rank, t.win.At(rank, 8*(bucket-from))
}

// read gets all buckets from their owners, at the same time.
func (t *table) read(ctx context.Context) ([]uint64, error) {
	mem := make([]byte, 8*t.buckets)
	reqs := make([]rma.Request, t.eng.Size())
	for r := range reqs {
		from, to := t.owned(r)
		reqs[r] = t.eng.Peer(r).GetBytes(mem[8*from:8*to], t.win.At(r, 0))
	}
	err := rma.WaitAll(ctx, reqs...)
	counts := make([]uint64, t.buckets)
	for b := range counts {
		counts[b] = binary.NativeEndian.Uint64(mem[8*b:])
	}
	return counts, err
}

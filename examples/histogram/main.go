// Command histogram counts values that are spread over all ranks in buckets that are
// spread over all ranks, in two ways: by an atomic a value, and by one accumulate a rank.
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
// The table is a window: bucket b lies with rank b·ranks/buckets, and any rank counts
// in it. The owners do nothing for it.
//
//   - Peer.FetchAdd is for counts that others need at once, or that come one by one: tickets,
//     work queues, locks. Here many are under way at a time: no result is waited for, because
//     nobody wants to know what a bucket held before. Request.Forget says so, and Engine.FlushAll
//     waits for all of them at the end: complete means counted.
//   - Accumulate adds a slice to a slice, and costs one operation for all its numbers. Whoever
//     can count at home first should: the same answer for a fraction of the messages. The target's
//     engine adds; its application may be computing.
//
// Every rank then reads the whole table with one Get from each owner. Before that a
// barrier, behind a FlushAll: a barrier alone says that all ranks came so far, not that
// what they had begun is done.
//
// # What to look at
//
// How the first way depends on the link (RMA_FABRIC=tcp), and the second hardly does.
// -skew makes few buckets take most of the counts: atomics on one word take turns.
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

type options struct {
	values, buckets int
	skew            bool
}

func main() {
	var o options
	flag.IntVar(&o.values, "values", 100_000, "values of each rank")
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
	if o.values < 1 || o.buckets < eng.Size() {
		return fmt.Errorf("want at least a value, and a bucket for each of %d ranks", eng.Size())
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

// values are those of a rank: the buckets they fall into.
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
			z &= z >> 32 // small numbers are likelier
			z &= z >> 16
			z &= 0xffff
		}
		v[i] = int(z % uint64(o.buckets))
	}
	return v
}

// byFetchAdd adds 1 where each value belongs.
func byFetchAdd(ctx context.Context, t *table, values []int) error {
	for _, b := range values {
		rank, at := t.place(b)
		t.eng.Peer(rank).FetchAdd(at, 1).Forget()
	}
	return t.eng.FlushAll(ctx)
}

// byAccumulate counts at home, and adds the counts to each owner's buckets.
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

// table is the buckets of all ranks.
type table struct {
	eng     *rma.Engine
	win     *rma.Window
	buckets int
}

// newTable makes an empty table; all ranks do.
func newTable(ctx context.Context, eng *rma.Engine, buckets int) (*table, error) {
	t := &table{eng: eng, buckets: buckets}
	from, to := t.owned(eng.Rank())
	var err error
	t.win, err = eng.Window(ctx, 8*(to-from))
	return t, err
}

// owned are the buckets from … to-1 of a rank.
func (t *table) owned(rank int) (from, to int) { return owned(rank, t.buckets, t.eng.Size()) }

func owned(rank, buckets, ranks int) (from, to int) {
	return rank * buckets / ranks, (rank + 1) * buckets / ranks
}

// owner is the last rank whose buckets do not begin behind this one:
// rank·buckets/ranks < bucket + 1.
func owner(bucket, buckets, ranks int) int { return ((bucket+1)*ranks - 1) / buckets }

// place is where a bucket is counted.
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

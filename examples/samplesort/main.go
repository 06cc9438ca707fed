// Command samplesort sorts numbers that are spread over all ranks, so that every rank
// ends with a run of them and the runs follow each other in the order of ranks.
//
//	rmarun -n 4 go run ./examples/samplesort -numbers 1000000
//	mpirun -n 4 samplesort; srun -n 4 samplesort
//
//	4000000 numbers of 4 ranks over shm: 0.50 s, 8.0 million a second
//	largest share 1002315, 1.00 of the mean; moved in 12 puts
//	sorted, and the same numbers as before
//
// # What it shows
//
// Sample sort (Frazer, McKellar 1970) moves every number once: ranks agree on
// splitters, each sorts and cuts its numbers at these, and every piece goes to the rank
// that it belongs to. The exchange is one put a piece, without a message:
//
//  1. Splitters: every rank writes a regular sample of its sorted numbers into a table
//     that all ranks have (Window.At of each, one put a rank), and after a barrier
//     all sort the same samples and come to the same splitters.
//  2. Counts: every rank writes how much it will send to each rank, likewise. Now all
//     know where every piece begins at its target: behind those of lower ranks.
//  3. Numbers: windows of the right sizes are made (Engine.Window: sizes may differ), and
//     every piece is put where it belongs (Peer.PutBytes: the memory need not be registered),
//     starting with the next rank, so that not all write to rank 0 first.
//  4. Peer.Flush of all, a barrier, and each rank merges the sorted pieces it got.
//
// With MPI this is Allgather, Alltoall and Alltoallv. Here the places are computed, and
// data goes there; the target is told by the barrier that all have done so.
//
// # What to look at
//
// The largest share says how good the splitters are: regular sampling bounds it by twice the
// mean, and equal numbers do not spoil that, because splitters are numbers with their rank and
// place: no two are equal (-kind equal). -kind sorted shows the other extreme: nearly
// nothing moves.
//
// # Files
//
//	splitters.go  samples, splitters, cutting
//	exchange.go   tables that all ranks have, and the exchange
//	check.go      is it sorted, and is it the same
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/examples/internal/command"
)

type options struct {
	numbers int
	kind    string
	seed    uint64
}

func main() {
	var o options
	flag.IntVar(&o.numbers, "numbers", 1_000_000, "numbers of each rank")
	flag.StringVar(&o.kind, "kind", "random", "random, sorted, reverse, equal or few (different ones)")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the random numbers")
	command.Main(func(ctx context.Context) error { return run(ctx, o) })
}

func run(ctx context.Context, o options) error {
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer eng.Close()
	mine, err := generate(eng.Rank(), eng.Size(), o)
	if err != nil {
		return err
	}
	before := digest(mine)
	if err := eng.Barrier(ctx); err != nil {
		return err
	}
	start := time.Now()
	s := &sorter{eng: eng}
	got, err := s.sort(ctx, mine)
	if err != nil {
		return err
	}
	took := time.Since(start)
	total, err := s.check(ctx, before, got)
	if err != nil {
		return err
	}
	if eng.Rank() == 0 {
		mean := float64(total.count) / float64(eng.Size())
		fmt.Printf("%d numbers of %d ranks over %s: %.2f s, %.1f million a second\n",
			total.count, eng.Size(), eng.Peer(eng.Size()-1).Link(), took.Seconds(), float64(total.count)/took.Seconds()/1e6)
		fmt.Printf("largest share %d, %.2f of the mean; moved in %d puts\n", total.largest, float64(total.largest)/max(mean, 1), total.puts)
		fmt.Println("sorted, and the same numbers as before")
	}
	return eng.Barrier(ctx)
}

// generate makes the numbers of a rank.
func generate(rank, ranks int, o options) ([]uint64, error) {
	if o.numbers < 0 {
		return nil, fmt.Errorf("%d numbers", o.numbers)
	}
	rng := rand.New(rand.NewPCG(o.seed, uint64(rank)))
	v := make([]uint64, o.numbers)
	for i := range v {
		at := uint64(rank*o.numbers + i)
		switch o.kind {
		case "random":
			v[i] = rng.Uint64()
		case "sorted":
			v[i] = at
		case "reverse":
			v[i] = uint64(ranks*o.numbers) - at
		case "equal":
			v[i] = 42
		case "few":
			v[i] = rng.Uint64N(3)
		default:
			return nil, fmt.Errorf("kind %q: want random, sorted, reverse, equal or few", o.kind)
		}
	}
	return v, nil
}

// sorter is a rank at work.
type sorter struct {
	eng  *rma.Engine
	puts uint64 // pieces written to other ranks
}

// sort returns this rank's run of the numbers of all ranks. It sorts mine in place.
func (s *sorter) sort(ctx context.Context, mine []uint64) ([]uint64, error) {
	slices.Sort(mine)
	split, err := s.splitters(ctx, mine)
	if err != nil {
		return nil, err
	}
	pieces, err := s.exchange(ctx, mine, cut(mine, s.eng.Rank(), split))
	if err != nil {
		return nil, err
	}
	return merge(pieces), nil
}

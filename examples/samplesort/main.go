// Command samplesort sorts numbers that are distributed over all ranks. In the end every
// rank has a sorted part, and the parts follow each other in the order of the ranks.
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
// splitters, each rank sorts its numbers and divides them at the splitters, and sends every
// piece to its rank. The exchange needs one put per piece and no messages:
//
//  1. Splitters: every rank writes a regular sample of its sorted numbers into a table
//     on every rank (Window.At, one put per rank). After a barrier all ranks sort the
//     same samples and derive the same splitters.
//  2. Counts: every rank writes the sizes of its pieces in the same way. Then all ranks
//     know where every piece begins at its target: behind those of lower ranks.
//  3. Numbers: the ranks create windows of the right sizes (Engine.Window: sizes may
//     differ), and put every piece (Peer.PutBytes: the memory need not be registered),
//     beginning with the next rank, so that not all write to rank 0 first.
//  4. Peer.Flush of all peers, a barrier, and each rank merges the sorted pieces.
//
// With MPI this is Allgather, Alltoall and Alltoallv. Here the source computes the address
// at the target, and the barrier notifies the target that all pieces have arrived.
//
// # Experiments
//
// The largest share shows the quality of the splitters: regular sampling bounds it by twice
// the mean. Equal numbers do not break the bound, because a splitter includes its rank and
// position, so that no two splitters are equal (-kind equal). With -kind sorted almost no
// number moves.
//
// # Files
//
//	splitters.go  samples, splitters, cutting
//	exchange.go   tables on all ranks, and the exchange
//	check.go      checks of order and completeness
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

const most = 1 << 30 // numbers per rank

type options struct {
	numbers int
	kind    string
	seed    uint64
}

func main() {
	var o options
	flag.IntVar(&o.numbers, "numbers", 1_000_000, "numbers per rank")
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

// generate returns the numbers of a rank.
func generate(rank, ranks int, o options) ([]uint64, error) {
	if o.numbers < 0 || o.numbers > most {
		return nil, fmt.Errorf("%d numbers: want 0 to %d", o.numbers, most)
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

// sorter is the state of one rank.
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

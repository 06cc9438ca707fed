// Command is is the benchmark IS of the NAS Parallel Benchmarks, "integer sort": it computes
// the rank of every key among all keys, ten times with slightly different keys.
//
//	rmarun -n 4 go run ./examples/nas/is -class A
//
// Any number of ranks up to the number of buckets. Each rank counts its keys by bucket, the
// high bits of a key; an allreduce gives all ranks the sizes of the buckets, from which each
// derives which ranks get which buckets; an alltoallv moves every key to the rank of its
// bucket, which counts the keys by value. It measures alltoallv with large blocks.
//
// Files: main.go the classes and the iterations, sort.go the ranking, verify.go the
// verification.
package main

import (
	"context"
	"strconv"

	"github.com/seed33544411/rma/examples/nas/internal/nas"
)

var kernel = nas.Kernel{Name: "IS", Run: run}

func main() { nas.Main(kernel) }

const (
	iterations = 10
	tests      = 5 // keys whose rank is verified in every iteration
)

// problem is a class: 2^keys keys below 2^bits.
type problem struct {
	keys, bits int
	where      [tests]int // index of a test key
	rank       [tests]int // its rank before the changes of the iterations
	moves      [tests]int // the rank changes by moves*(iteration+shift)
	shift      [tests]int
}

var problems = map[nas.Class]problem{
	"S": {16, 11, [tests]int{48427, 17148, 23627, 62548, 4431}, [tests]int{0, 18, 346, 64917, 65463},
		[tests]int{1, 1, 1, -1, -1}, [tests]int{}},
	"W": {20, 16, [tests]int{357773, 934767, 875723, 898999, 404505}, [tests]int{1249, 11698, 1039987, 1043896, 1048018},
		[tests]int{1, 1, -1, -1, -1}, [tests]int{-2, -2, 0, 0, 0}},
	"A": {23, 19, [tests]int{2112377, 662041, 5336171, 3642833, 4250760}, [tests]int{104, 17523, 123928, 8288932, 8388264},
		[tests]int{1, 1, 1, -1, -1}, [tests]int{-1, -1, -1, -1, -1}},
	"B": {25, 21, [tests]int{41869, 812306, 5102857, 18232239, 26860214}, [tests]int{33422937, 10244, 59149, 33135281, 99},
		[tests]int{-1, 1, 1, -1, 1}, [tests]int{}},
}

func run(ctx context.Context, c *nas.Comm, class nas.Class) (r nas.Result, err error) {
	p, err := nas.Pick(class, problems)
	if err != nil {
		return r, err
	}
	s, err := newSorter(c, p)
	if err != nil {
		return r, err
	}
	if err := s.iterate(ctx, 1); err != nil { // not timed
		return r, err
	}
	s.passed = 0
	if err := c.Start(ctx); err != nil {
		return r, err
	}
	for i := 1; i <= iterations; i++ {
		if err := s.iterate(ctx, i); err != nil {
			return r, err
		}
	}
	c.Stop()
	ok, err := s.verify(ctx)
	return nas.Result{
		Size: strconv.Itoa(s.total), Iterations: iterations, Operations: float64(iterations * s.total), Kind: "keys ranked",
		Verified: ok,
	}, err
}

// Command allreduce sums a vector over all ranks: the smallest program with a collective
// operation.
//
//	rmarun -n 4 go run ./examples/allreduce
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/coll"
)

func main() {
	if err := allreduce(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func allreduce(ctx context.Context) error {
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer eng.Close()
	team, err := coll.World(eng)
	if err != nil {
		return err
	}
	mine, sums := []float64{1, float64(eng.Rank())}, make([]float64, 2)
	if err := coll.Allreduce(ctx, team, mine, sums, coll.Sum); err != nil {
		return err
	}
	fmt.Printf("rank %d: %g ranks, whose numbers add up to %g\n", eng.Rank(), sums[0], sums[1])
	return nil
}

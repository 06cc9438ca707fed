package coll_test

import (
	"context"
	"fmt"
	"log"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/coll"
)

// All ranks get the sum of the vectors of all ranks. Alone, a process is the only rank.
func ExampleTeam() {
	ctx := context.Background()
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	team, err := coll.World(eng)
	if err != nil {
		log.Fatal(err)
	}
	sums := make([]float64, 3)
	if err := coll.Allreduce(ctx, team, []float64{1, 2, 3}, sums, coll.Sum); err != nil {
		log.Fatal(err)
	}
	fmt.Println(sums)
	// Output: [1 2 3]
}

// An operation progresses while the application computes.
func ExampleRequest() {
	ctx := context.Background()
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	team, err := coll.World(eng)
	if err != nil {
		log.Fatal(err)
	}
	data := []int32{3, 4}
	req := coll.StartBcast(team, 0, data)
	// ... compute ...
	if err := req.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(data)
	// Output: [3 4]
}

// An operation that is started again and again is planned once.
func ExamplePersistent() {
	ctx := context.Background()
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	team, err := coll.World(eng)
	if err != nil {
		log.Fatal(err)
	}
	mine, sums := []float64{1, 2}, make([]float64, 2)
	op, err := coll.PrepareAllreduce(team, mine, sums, coll.Sum)
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		if err := op.Start().Wait(ctx); err != nil {
			log.Fatal(err)
		}
		fmt.Println(sums)
		mine[0] += sums[1]
	}
	if err := op.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// [1 2]
	// [3 2]
	// [5 2]
}

// A reduction may be a function of the application: here the larger value, and its place.
func ExampleOp() {
	type place struct {
		Value float64
		Rank  int32
	}
	ctx := context.Background()
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	team, err := coll.World(eng)
	if err != nil {
		log.Fatal(err)
	}
	largest := coll.Func(func(dst, src []place) {
		for i := range dst {
			if src[i].Value > dst[i].Value || src[i].Value == dst[i].Value && src[i].Rank < dst[i].Rank {
				dst[i] = src[i]
			}
		}
	})
	mine := []place{{2.5, int32(eng.Rank())}}
	if err := coll.Allreduce(ctx, team, nil, mine, largest); err != nil {
		log.Fatal(err)
	}
	fmt.Println(mine[0].Value, mine[0].Rank)
	// Output: 2.5 0
}

// Ranks that call different operations get an error that names them.
func ExampleMismatchError() {
	err := fmt.Errorf("team: %w", &coll.MismatchError{Ranks: [2]int{0, 3}, Calls: [2]string{"Barrier", "Bcast"}})
	fmt.Println(err)
	// Output: team: ranks of a team make different collective calls: rank 0: Barrier; rank 3: Bcast
}

// The ranks of a team write into each other's memory, by rank of the team.
func ExampleWindow() {
	ctx := context.Background()
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	team, err := coll.World(eng)
	if err != nil {
		log.Fatal(err)
	}
	w, err := coll.NewWindow(ctx, team, 1<<20)
	if err != nil {
		log.Fatal(err)
	}
	a, err := rma.ArrayOf[float64](w.Window)
	if err != nil {
		log.Fatal(err)
	}
	to := (team.Rank() + 1) % team.Size()
	if err := a.Put(to, 100, []float64{1, 2, 3}).Wait(ctx); err != nil {
		log.Fatal(err)
	}
	if err := coll.Barrier(ctx, team); err != nil {
		log.Fatal(err)
	}
	fmt.Println(a.Own()[100:103])
	if err := w.Free(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: [1 2 3]
}

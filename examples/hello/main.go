// Command hello is the smallest job: every rank writes a greeting into the
// memory of the next rank, and reads the one that it received.
//
//	rmarun -n 2 go run ./examples/hello
//	RMA_FABRIC=tcp rmarun -n 4 go run ./examples/hello
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/seed33544411/rma"
)

func main() {
	if err := hello(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func hello(ctx context.Context) error {
	eng, err := rma.Open(ctx, nil) // finds its job in the environment; alone: rank 0 of 1
	if err != nil {
		return err
	}
	defer eng.Close()
	mem, err := eng.Alloc(4096) // registered memory outside the Go heap
	if err != nil {
		return err
	}
	keys, err := rma.AllGatherKeys(ctx, eng, mem)
	if err != nil {
		return err
	}
	next := (eng.Rank() + 1) % eng.Size()
	n := copy(mem.Bytes(), fmt.Sprintf("hello from rank %d of %d", eng.Rank(), eng.Size()))
	if err := eng.Peer(next).Put(keys[next].At(2048), mem.Slice(0, n)).Wait(ctx); err != nil {
		return err
	}
	if err := eng.Barrier(ctx); err != nil { // everybody has written
		return err
	}
	fmt.Printf("rank %d got %q over %s\n", eng.Rank(), mem.Bytes()[2048:2048+n], eng.Peer(next).Link())
	return eng.Barrier(ctx) // nobody leaves while others still need its memory
}

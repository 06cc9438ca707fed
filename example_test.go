package rma_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/seed33544411/rma"
)

// A job of one rank, so that the example runs anywhere; under rmarun the same code accesses
// the memory of others.
func Example() {
	ctx := context.Background()
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	mem, err := eng.Alloc(1 << 20)
	if err != nil {
		log.Fatal(err)
	}
	keys, err := rma.AllGatherKeys(ctx, eng, mem)
	if err != nil {
		log.Fatal(err)
	}
	to := (eng.Rank() + 1) % eng.Size()
	n := copy(mem.Bytes(), "hello")
	if err := eng.Peer(to).Put(keys[to].At(4096), mem.Slice(0, n)).Wait(ctx); err != nil {
		log.Fatal(err)
	}
	if err := eng.Barrier(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", mem.Bytes()[4096:4096+n])
	// Output: hello
}

func ExamplePeer_FetchAdd() {
	ctx := context.Background()
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	mem, err := eng.Alloc(4096)
	if err != nil {
		log.Fatal(err)
	}
	key := mem.Key()
	for range 3 {
		ticket, err := eng.Peer(0).FetchAdd(key.At(0), 1).Wait(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("ticket", ticket)
	}
	// Output:
	// ticket 0
	// ticket 1
	// ticket 2
}

// Many operations may be in flight; an error names the peer and the cause.
func ExampleRequest_Wait() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	mem, err := eng.Alloc(1 << 16)
	if err != nil {
		log.Fatal(err)
	}
	key := mem.Key()
	reqs := make([]rma.Request, 0, 100)
	for i := range 100 {
		reqs = append(reqs, eng.Peer(0).Put(key.At(32768+64*i), mem.Slice(64*i, 64)))
	}
	for _, r := range reqs {
		if err := r.Wait(ctx); errors.Is(err, rma.ErrPeerGone) {
			log.Fatal("a peer died: ", err)
		} else if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("all written")
	// Output: all written
}

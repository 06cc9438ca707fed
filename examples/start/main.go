// Command start is the program of docs/getting-started.md: a counter in the memory of
// rank 0, a table that other ranks read without calls by its owner, messages, and the
// handling of a peer's death.
//
//	rmarun -n 2 go run ./examples/start
//	RMA_FABRIC=tcp rmarun -n 4 go run ./examples/start
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/seed33544411/rma"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer eng.Close()
	mem, err := eng.Alloc(4096)
	if err != nil {
		return err
	}
	keys, err := rma.AllGatherKeys(ctx, eng, mem)
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context, *rma.Engine, *rma.Region, []rma.Key) error{count, read, message} {
		if err := step(ctx, eng, mem, keys); err != nil {
			return survive(err)
		}
		if err := eng.Barrier(ctx); err != nil {
			return err
		}
	}
	return nil
}

// count draws tickets from a word in the memory of rank 0, which does nothing
// for it.
func count(ctx context.Context, eng *rma.Engine, mem *rma.Region, keys []rma.Key) error {
	counter := keys[0].At(0)
	for range 3 {
		ticket, err := eng.Peer(0).FetchAdd(counter, 1).Wait(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("rank %d has ticket %d\n", eng.Rank(), ticket)
	}
	return nil
}

// read lets every rank publish a number, and reads those of all others.
func read(ctx context.Context, eng *rma.Engine, mem *rma.Region, keys []rma.Key) error {
	const mine, theirs = 64, 128 // places in the region
	binary.LittleEndian.PutUint64(mem.Bytes()[mine:], uint64(100+eng.Rank()))
	if err := eng.Barrier(ctx); err != nil { // everybody has published
		return err
	}
	reqs := make([]rma.Request, eng.Size())
	for r := range reqs { // all under way at once
		reqs[r] = eng.Peer(r).Get(mem.Slice(theirs+8*r, 8), keys[r].At(mine))
	}
	sum := uint64(0)
	for r, req := range reqs {
		if err := req.Wait(ctx); err != nil {
			return err
		}
		sum += binary.LittleEndian.Uint64(mem.Bytes()[theirs+8*r:])
	}
	fmt.Printf("rank %d read a sum of %d\n", eng.Rank(), sum)
	return nil
}

// message sends messages from rank 0 to all ranks, itself included.
func message(ctx context.Context, eng *rma.Engine, mem *rma.Region, keys []rma.Key) error {
	parts := [][]byte{[]byte("small"), []byte("words"), make([]byte, 1<<20)}
	var sent []rma.Request
	if eng.Rank() == 0 {
		for r := range eng.Size() {
			b := eng.Peer(r).Batch()
			for tag, part := range parts {
				b.Add(uint32(tag), part)
			}
			sent = append(sent, b.Send()) // eng.Peer(0).Recv(buf) on the other side
		}
	}
	buf := make([]byte, 1<<20)
	for range parts {
		tag, n, err := eng.Peer(0).Recv(buf).WaitTag(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("rank %d got message %d of %d bytes\n", eng.Rank(), tag, n)
	}
	for _, req := range sent {
		if err := req.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// survive says what an error of an operation means.
func survive(err error) error {
	var pe *rma.PeerError
	switch {
	case errors.As(err, &pe) && errors.Is(err, rma.ErrPeerGone):
		return fmt.Errorf("rank %d died; the others can still be reached: %w", pe.Rank, err)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted; the operation itself continues: %w", err)
	}
	return err
}

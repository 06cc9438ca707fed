package rma_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/seed33544411/rma"
)

// A configuration in code. The user who starts the program can override all of it by
// variables or a file: RMA_FABRIC=tcp, RMA_CONFIG=/etc/rma.conf.
func ExampleConfig() {
	eng, err := rma.Open(context.Background(), &rma.Config{
		PeerTimeout: 500 * time.Millisecond,                  // a peer that is silent for so long is gone
		Settings:    map[string]string{"disable_cma": "yes"}, // settings without a field
		Logger:      slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()

	_, err = rma.Open(context.Background(), &rma.Config{Depth: 1 << 20, Fabric: "shmem"})
	fmt.Println(err)
	// Output:
	// rma: open: config: 2 settings are wrong:
	// 	Config.Depth = 1048576: want a number of requests, 16 … 65536
	// 	Config.Fabric = shmem: want auto, shm, tcp, verbs or ibv
}

// One kind of link for all peers of this rank, where the best would be another.
func ExampleFabric() {
	eng, err := rma.Open(context.Background(), &rma.Config{Fabric: rma.FabricTCP})
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	fmt.Println(eng.Peer(0).Link())
	// Output: tcp
}

// One way for all messages, to compare it with what the cost model chooses.
func ExampleMode() {
	ctx := context.Background()
	eng, err := rma.Open(ctx, &rma.Config{Mode: rma.ModeEager})
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	me, buf := eng.Peer(eng.Rank()), make([]byte, 16)
	recv := me.Recv(buf)
	if err := me.Send([]byte("hello")).Wait(ctx); err != nil {
		log.Fatal(err)
	}
	n, err := recv.Wait(ctx)
	fmt.Println(string(buf[:n]), err)
	// Output: hello <nil>
}

// One way for puts and gets of several pieces, for a program whose ranks compute for long
// with all their processors: only the link is needed then.
func ExamplePieces() {
	ctx := context.Background()
	eng, err := rma.Open(ctx, &rma.Config{Pieces: rma.PiecesChain})
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	mem, err := eng.Alloc(64)
	if err != nil {
		log.Fatal(err)
	}
	key, me := mem.Key(), eng.Peer(eng.Rank())
	copy(mem.Bytes(), "a1b2")
	column := rma.Shape2D(2, 1, 2, 1)
	err = me.PutStrided(key.At(32), mem.Slice(0, 32), column).Wait(ctx)
	fmt.Println(string(mem.Bytes()[32:34]), err)
	// Output: ab <nil>
}

// A short program runs without measurements.
func ExampleSampling() {
	eng, err := rma.Open(context.Background(), &rma.Config{Sampling: rma.SamplingOff})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(eng.Close())
	// Output: <nil>
}

// A program that gets its job from another source than the environment.
func ExampleJob() {
	eng, err := rma.Open(context.Background(), &rma.Config{
		Job: &rma.Job{Rank: 0, Size: 1}, // of several ranks: Root and Token as well
	})
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	fmt.Printf("rank %d of %d\n", eng.Rank(), eng.Size())
	// Output: rank 0 of 1
}

// Ranks synchronise by barriers: a barrier before Close lets all ranks finish their
// accesses.
func ExampleEngine() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	for r := range eng.Size() {
		fmt.Println("rank", eng.Peer(r).Rank())
	}
	if err := eng.Barrier(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: rank 0
}

// Errors of operations name the peer and the operation, and wrap the cause.
func ExamplePeerError() {
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
	err = eng.Peer(0).Put(key.At(4000), mem.Slice(0, 1000)).Wait(ctx) // 4000 + 1000 > 4096
	var pe *rma.PeerError
	if errors.As(err, &pe) {
		fmt.Println(pe.Op, pe.Rank)
	}
	switch {
	case errors.Is(err, rma.ErrBounds):
		fmt.Println("a slip of this program")
	case errors.Is(err, rma.ErrPeerGone):
		fmt.Println("go on without that rank, or end")
	}
	// Output:
	// put 0
	// a slip of this program
}

// Counters of an engine: puts, their bytes, failed operations, regions.
func ExampleStats() {
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
	for range 10 {
		if err := eng.Peer(0).Put(key.At(64), mem.Slice(0, 64)).Wait(ctx); err != nil {
			log.Fatal(err)
		}
	}
	s := eng.Stats()
	fmt.Println(s.Puts, s.PutBytes, s.Failed, s.Regions)
	// Output: 10 640 0 1
}

// Counters of one peer; Err is the reason why its connection has ended.
func ExamplePeerStats() {
	eng, err := rma.Open(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	for r := range eng.Size() {
		if s := eng.Peer(r).Stats(); s.Err != nil {
			fmt.Println(s.Rank, s.Link, s.Err)
		}
	}
	// Output:
}

// With Config.Rails, or RMA_RAILS, the statistics of a peer show what each connection carries.
func ExampleRailStats() {
	eng, err := rma.Open(context.Background(), &rma.Config{Rails: "eth1"})
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	for r := range eng.Size() {
		for _, s := range eng.Peer(r).Stats().Rails {
			fmt.Println(r, s.Number, s.Up, s.Bytes)
		}
	}
	// Output:
}

// The difference of two Counts counts the operations between them.
func ExampleCounts() {
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
	before := eng.Stats().Counts
	if _, err := eng.Peer(0).FetchAdd(key.At(0), 1).Wait(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(eng.Stats().Atomics - before.Atomics)
	// Output: 1
}

// Messages of a rank to itself are copied directly: no mode is chosen.
func ExampleMessageStats() {
	ctx := context.Background()
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	r := eng.Peer(0).Recv(make([]byte, 16))
	if err := eng.Peer(0).Send([]byte("to myself")).Wait(ctx); err != nil {
		log.Fatal(err)
	}
	if _, err := r.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	s := eng.Stats()
	fmt.Println(s.Sends, s.Messages.Eager+s.Messages.Gathered+s.Messages.Fetched)
	// Output: 1 0
}

// Watch reports the end of peers to a rank without operations in flight.
func ExamplePeerEvent() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "rma-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	job := func(rank int) *rma.Config { // as rmarun would set it in the environment
		return &rma.Config{Job: &rma.Job{
			Rank: rank, Size: 2, Root: "unix:" + dir + "/s", Token: bytes.Repeat([]byte{7}, 32), Serve: rank == 0,
		}}
	}
	left := make(chan error, 1)
	go func() {
		eng, err := rma.Open(ctx, job(1))
		if err == nil {
			err = eng.Close() // this rank leaves at once
		}
		left <- err
	}()
	eng, err := rma.Open(ctx, job(0))
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	const lost rma.PeerState = rma.PeerHung
	for ev := range eng.Watch(ctx) { // in a goroutine of its own, as a rule
		if ev.State >= lost {
			fmt.Printf("rank %d is %v: %v\n", ev.Rank, ev.State, errors.Is(ev.Err, rma.ErrPeerGone))
			break
		}
	}
	if err := <-left; err != nil {
		log.Fatal(err)
	}
	// Output: rank 1 is gone: true
}

// States are ordered from working to lost.
func ExamplePeerState() {
	for s := rma.PeerUp; s <= rma.PeerGone; s++ {
		fmt.Println(s, s >= rma.PeerHung)
	}
	// Output:
	// up false
	// silent false
	// down false
	// hung true
	// gone true
}

// The program logs rails that are lost and that come back.
func ExampleRailEvent() {
	watch := func(e *rma.Engine) {
		for ev := range rma.WatchRails(context.Background(), e) {
			fmt.Println("rank", ev.Rank, "rail", ev.Rail, "up:", ev.Up, ev.Err)
		}
	}
	_ = watch // go watch(engine)
}

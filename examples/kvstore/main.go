// Command kvstore is a key-value store in the memory of several ranks. To read is to
// fetch the place where the key must be: the rank that has it takes no part, and computes
// all the while. To write is to ask the owner.
//
//	rmarun -n 2 go run ./examples/kvstore -ops 100000
//	rmarun -n 4 go run ./examples/kvstore -servers 2 -keys 1 -writes 0.5
//
//	10000 keys on 1 of 2 ranks, 1 clients over shm: 94935 reads and 5065 writes in 0.46 s, 207136 reads a second
//	a read takes 544ns (p50), 1.664µs (p99); 0 found a torn slot and were done again
//	the application of rank 0 computed meanwhile, at 97% of its pace alone
//	all values were whole, and no version went back
//
// # What it shows
//
// A store over RPC wakes a thread of the owner for each read, and serves as many as
// that has time for. Here the first ranks (-servers) hold a part of a hash table each, in
// the window that all ranks have made together (Engine.Window). Which rank a key is on and
// where it may lie there follow from its hash, so a reader computes the place and
// fetches it with one Peer.Get: a bucket of four slots. Most keys are in the first bucket
// looked at.
//
// Nobody locks. A slot may be written while it is fetched, and what arrives be in part old
// and in part new: torn. Each slot carries a checksum of its key, value and version
// (slot.go says why not a version before and one behind, as in a seqlock), and a reader that finds
// it wrong fetches again. So do Pilaf (Mitchell and others, USENIX ATC 2013) and, with versions
// in cache lines, FaRM (Dragojević and others, NSDI 2014).
//
// Writes are messages to a handler (Engine.HandleWith) that the owner's progress engine
// calls, one at a time: its application has no part in writes either, and a shard has one
// writer, with no locks. The answer carries the version, and whoever has it finds that
// version or a later one: the handler stores before it answers.
//
// In the end each client adds its counts to those in rank 0's memory by one Accumulate, and
// itself to a word on every server by FetchAdd. The servers' applications compute until
// that word says that all have come; they look at it by an atomic load, and call nothing
// of the library meanwhile. Who else would tell them that a client has died: Engine.Watch does.
//
// # What to look at
//
// Clients check all that they read: a value says by itself whether somebody has written
// it, and versions of a key never go back. -keys 1 -writes 0.5 has all clients hammer one
// slot: reads that meet a write are done again. A slot is written in some tens of
// nanoseconds, so these are few; a test writes in two steps, and meets many.
//
// The pace of the owner's application: over shm and RDMA reads take nothing from it as long
// as ranks have a processor each (with more ranks than processors, they share those). Over tcp
// (RMA_FABRIC=tcp) its engine answers each fetch, and needs a processor for that: where the
// applications leave none idle, a read takes as long as the scheduler has the engine wait,
// milliseconds perhaps. So does a write, over any link.
//
// Left out: values longer than a slot (a slot would name memory elsewhere), growth, and what
// becomes of a shard whose rank dies.
//
// # Files
//
//	layout.go  which key lies where
//	slot.go    a key and its value in memory, and whether they are whole
//	client.go  reading, and asking to write
//	shard.go   the owner's side of the table; serve.go its messages
//	load.go    what clients do; count.go what they count
//	work.go    the application of an owner
package main

import (
	"context"
	"flag"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/examples/internal/command"
)

type options struct {
	keys, ops, servers, clients int
	writes                      float64       // part of the operations
	alone                       time.Duration // that the applications compute for before clients begin
}

func main() {
	var o options
	flag.IntVar(&o.keys, "keys", 10000, "keys in the store")
	flag.IntVar(&o.ops, "ops", 100000, "operations of each client")
	flag.IntVar(&o.servers, "servers", 1, "ranks that hold the store; the others read and write")
	flag.IntVar(&o.clients, "clients", 1, "clients per rank that holds no store")
	flag.Float64Var(&o.writes, "writes", 0.05, "fraction of operations that are writes")
	flag.DurationVar(&o.alone, "alone", 200*time.Millisecond, "time for measuring the applications undisturbed")
	command.Main(func(ctx context.Context) error { return run(ctx, o) })
}

func run(ctx context.Context, o options) error {
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer eng.Close()
	if o.keys < 1 || o.ops < 1 || o.writes < 0 || o.writes > 1 {
		return fmt.Errorf("want a key, an operation, and a part of writes between 0 and 1")
	}
	// Half of all slots stay free.
	l := layout{servers: o.servers, size: eng.Size(), clients: o.clients, buckets: 1 + 2*o.keys/(slots*max(1, o.servers))}
	if err := l.check(); err != nil {
		return err
	}
	n, err := newNode(ctx, eng, l, o)
	if err != nil {
		return err
	}
	defer n.close()
	if err := n.fill(ctx); err != nil {
		return err
	}
	if err := n.measure(ctx); err != nil {
		return err
	}
	return n.win.Free(ctx)
}

// node is one rank: a server, or clients, or both where it is the only one.
type node struct {
	layout
	o       options
	eng     *rma.Engine
	win     *rma.Window
	handler *rma.Handler
	loads   []*load
}

func newNode(ctx context.Context, eng *rma.Engine, l layout, o options) (*node, error) {
	win, err := eng.Window(ctx, l.bytes(eng.Rank()))
	if err != nil {
		return nil, err
	}
	n := &node{layout: l, o: o, eng: eng, win: win}
	if l.serves(eng.Rank()) {
		s := &server{shard: shard{layout: l, mem: win.Bytes()}, eng: eng, answers: make([]int, eng.Size())}
		if n.handler, err = eng.HandleWith(handling, s.handle); err != nil {
			return nil, err
		}
	}
	if l.reads(eng.Rank()) {
		first := max(0, eng.Rank()-l.servers) * o.clients
		for id := range o.clients {
			c, err := newClient(eng, win, l, id)
			if err != nil {
				return nil, err
			}
			n.loads = append(n.loads, newLoad(c, first+id, o.keys))
		}
	}
	return n, eng.Barrier(ctx) // all servers listen
}

// close ends what needs the window. Regions of clients go with the engine.
func (n *node) close() {
	if n.handler != nil {
		n.handler.Close()
	}
}

func (n *node) fill(ctx context.Context) error {
	var g errgroup.Group
	for _, l := range n.loads {
		g.Go(func() error { return l.fill(ctx) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return n.eng.Barrier(ctx)
}

// measure has the applications of servers compute, first alone and then until all
// clients have done their operations.
func (n *node) measure(ctx context.Context) error {
	serves := n.serves(n.eng.Rank())
	var alone, served pace
	var err error
	if serves {
		end := time.Now().Add(n.o.alone)
		if alone, err = compute(ctx, func() bool { return time.Now().After(end) }); err != nil {
			return err
		}
	}
	if err := n.eng.Barrier(ctx); err != nil {
		return err
	}
	start := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for _, l := range n.loads {
		g.Go(func() error { return n.client(ctx, l) })
	}
	if serves {
		done, err := rma.View[uint64](n.win.Slice(doneAt, 8))
		if err != nil {
			return err
		}
		all := uint64(n.readers())
		wctx, stop := context.WithCancel(ctx)
		g.Go(func() error { return n.lose(wctx) })
		g.Go(func() (err error) {
			defer stop()
			served, err = compute(ctx, func() bool { return atomic.LoadUint64(&done[0]) == all })
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if n.eng.Rank() == 0 {
		return n.report(time.Since(start), alone, served)
	}
	return nil
}

// lose returns an error if a rank dies or hangs whose clients the applications wait for, and
// none when ctx ends.
func (n *node) lose(ctx context.Context) error {
	for ev := range n.eng.Watch(ctx) {
		if ev.State >= rma.PeerHung && n.reads(ev.Rank) {
			return fmt.Errorf("rank %d is %v: %w", ev.Rank, ev.State, ev.Err)
		}
	}
	return nil
}

// client does one client's operations, and then tells all servers.
func (n *node) client(ctx context.Context, l *load) error {
	if err := l.run(ctx, n.o.ops, n.o.writes); err != nil {
		return err
	}
	first := n.eng.Peer(0)
	if err := rma.Accumulate(first, n.win.At(0, countsAt), rma.Sum, l.count[:]).Wait(ctx); err != nil {
		return err
	}
	for rank := range n.servers {
		if _, err := n.eng.Peer(rank).FetchAdd(n.win.At(rank, doneAt), 1).Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// report prints what all have counted.
func (n *node) report(took time.Duration, alone, served pace) error {
	c, err := rma.View[uint64](n.win.Slice(countsAt, 8*counters))
	if err != nil {
		return err
	}
	if want := uint64(n.readers() * n.o.ops); c[reads]+c[writes] != want {
		return fmt.Errorf("%d reads and %d writes are counted, of %d", c[reads], c[writes], want)
	}
	fmt.Printf("%d keys on %d of %d ranks, %d clients over %s: %d reads and %d writes in %.2f s, %.0f reads a second\n",
		n.o.keys, n.servers, n.size, n.readers(), n.eng.Peer(n.size-1).Link(), c[reads], c[writes], took.Seconds(), float64(c[reads])/took.Seconds())
	if c[reads] > 0 {
		fmt.Printf("a read takes %v (p50), %v (p99); %d found a torn slot and were done again\n", quantile(c, 0.5), quantile(c, 0.99), c[again])
	}
	fmt.Printf("the application of rank 0 computed meanwhile, at %.0f%% of its pace alone\n", 100*served/alone)
	fmt.Println("all values were whole, and no version went back")
	return nil
}

// Command kvstore is a key-value store in the memory of several ranks. A client reads by
// fetching the slots in which the key must be; the rank that owns them takes no part, and
// continues to compute. A client writes by a request to the owner.
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
// A store over RPC wakes a thread of the owner for each read. Here each of the first
// ranks (-servers) holds a part of a hash table, in a window that all ranks have created
// together (Engine.Window). The hash of a key gives its rank and its possible positions,
// so a reader fetches them by one Peer.Get: a bucket of four slots. Most keys are in the
// first bucket.
//
// There are no locks. A slot may be written while it is fetched; the result is then partly
// old and partly new: torn. Each slot has a checksum of its key, value and version (slot.go
// explains why not versions before and behind, as in a seqlock), and a reader that finds it
// wrong fetches again. So do Pilaf (Mitchell and others, USENIX ATC 2013) and, with versions
// in cache lines, FaRM (Dragojević and others, NSDI 2014).
//
// Writes are messages to a handler (Engine.HandleWith), which the owner's progress engine
// calls one at a time: the owner's application takes no part in writes either, and a shard
// has one writer and needs no lock. The handler stores the value before it answers with the
// version, so a client that has the answer reads that version or a later one.
//
// In the end each client adds its counts to those in rank 0's memory by one Accumulate, and
// increments a word on every server by FetchAdd. The servers' applications compute until
// that word shows that all clients have finished; they read it by an atomic load and make no
// other calls meanwhile. Engine.Watch reports the death of a client.
//
// # Experiments
//
// Clients check all values that they read: a value shows by itself whether a client has
// written it, and versions of a key never decrease. With -keys 1 -writes 0.5 all clients use
// one slot, and reads that meet a write are repeated. A slot is written within some tens of
// nanoseconds, so these are few; a test writes in two steps and meets many.
//
// Reads over shm and RDMA do not slow the owner's application while every rank has its own
// processor. Over tcp (RMA_FABRIC=tcp) the owner's engine answers each fetch and needs a
// processor for it: if the applications leave none idle, a read takes until the scheduler
// runs the engine, possibly milliseconds. The same holds for writes over all links.
//
// Not implemented: values longer than a slot (a slot would hold a reference), growth, and
// the recovery of a shard whose rank dies.
//
// # Files
//
//	layout.go  the positions of a key
//	slot.go    a key and its value in memory, and the check that they are complete
//	client.go  reads, and requests to write
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

const maxKeys = 1 << 30

type options struct {
	keys, ops, servers, clients int
	writes                      float64       // part of the operations
	alone                       time.Duration // that the applications compute for before clients begin
}

func main() {
	var o options
	flag.IntVar(&o.keys, "keys", 10000, "keys in the store")
	flag.IntVar(&o.ops, "ops", 100000, "operations per client")
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
	if o.keys < 1 || o.keys > maxKeys || o.ops < 1 || !(o.writes >= 0 && o.writes <= 1) || o.alone <= 0 {
		return fmt.Errorf("want 1 to %d keys, at least one operation, a fraction of writes from 0 to 1, and a positive time", maxKeys)
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

// node is one rank: a server, or clients, or both if it is the only rank.
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

// close ends the users of the window. The engine closes the regions of clients.
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

// measure lets the applications of servers compute, first alone and then until all clients
// have finished their operations.
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

// client executes one client's operations, and then notifies all servers.
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

// report prints the counts of all clients.
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

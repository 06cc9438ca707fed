package rma_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"

	"github.com/seed33544411/rma"
)

// Memory of the application can be registered in place; Alloc's is better: it
// lies outside the Go heap, and peers of the same host map it.
func ExampleRegion() {
	eng, err := rma.Open(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	table := make([]byte, 1<<16)
	mem, err := eng.Register(table) // pinned until Close
	if err != nil {
		log.Fatal(err)
	}
	defer mem.Close()
	key := mem.Key()
	fmt.Println(key.Len())
	// Output: 65536
}

// A buffer is a piece of a region. Slicing costs nothing and checks nothing: the operation
// that uses the buffer checks it.
func ExampleBuffer() {
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
	copy(mem.Bytes(), "halo")
	row := mem.Slice(0, 4)
	if err := eng.Peer(0).Put(key.At(100), row).Wait(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", mem.Bytes()[100:104])
	// Output: halo
}

// Keys are values of a fixed size: send them as you like. A key received from a peer is not
// proven valid: only the peer's own engine can check it.
func ExampleKey() {
	eng, err := rma.Open(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	mem, err := eng.Alloc(4096)
	if err != nil {
		log.Fatal(err)
	}
	key := mem.Key()
	wire := key.Append(nil)
	fmt.Println(len(wire) == rma.KeySize)
	again, err := rma.ParseKey(wire)
	fmt.Println(again.Len(), err)
	// Output:
	// true
	// 4096 <nil>
}

// A remote is a place in the memory of a peer: a key and an offset.
func ExampleRemote() {
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
	at := key.At(8)
	if _, err := eng.Peer(0).FetchAdd(at, 5).Wait(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(mem.Bytes()[8] + mem.Bytes()[15]) // 5, at one end or the other
	// Output: 5
}

// Peers read from this memory, and cannot write to it.
func ExampleAccess() {
	ctx := context.Background()
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	table, err := eng.Alloc(4096, rma.PeersRead)
	if err != nil {
		log.Fatal(err)
	}
	key := table.Key()
	self := eng.Peer(eng.Rank())
	fmt.Println(self.GetBytes(make([]byte, 8), key.At(0)).Wait(ctx))
	err = self.PutBytes(key.At(0), make([]byte, 8)).Wait(ctx)
	fmt.Println(errors.Is(err, rma.ErrRemoteAccess))
	// Output:
	// <nil>
	// true
}

// Rings that follow the traffic, and the memory that they take.
func ExampleRingStats() {
	ctx := context.Background()
	eng, err := rma.Open(ctx, &rma.Config{RingMemory: 64 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	if r := eng.Stats().Rings; r.Refused > 0 {
		log.Printf("%d of %d bytes of rings in use, %d larger ones refused", r.Memory, r.Limit, r.Refused)
	}
}

// Ranks of one host store to each other's window directly.
func ExampleMapping() {
	ctx := context.Background()
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	win, err := eng.Window(ctx, 4096)
	if err != nil {
		log.Fatal(err)
	}
	for r := range eng.Size() {
		p := eng.Peer(r)
		if r == eng.Rank() || !rma.PlaceOf(p).Maps {
			continue // win.Bytes(), or Put and Get
		}
		m, err := rma.Map(ctx, p, win.Span(r, 0, win.Len(r)))
		if err != nil {
			log.Fatal(err)
		}
		defer m.Close()
		m.Bytes()[eng.Rank()] = 1
	}
}

// A rank reads memory of another one that is not registered (Write is the other direction): its address stands in memory that both
// map.
func ExampleAttachment() {
	var m *rma.Mapping // of the other rank's memory, see Map
	a, err := m.Attach()
	if err != nil {
		log.Print(err) // let the other rank register its memory, and use Get
		return
	}
	defer a.Close()
	data := make([]byte, 1<<20)
	if err := a.Read(data, binary.NativeEndian.Uint64(m.Bytes())); err != nil {
		log.Fatal(err)
	}
	m.Bytes()[8] = 1 // the other rank may change the data
}

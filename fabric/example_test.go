package fabric_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
)

// pair joins two endpoints. Between processes, the addresses are exchanged out of band. The
// rest is the same for every link.
func pair() (a, b fabric.Link, ea, eb fabric.Endpoint) {
	net := sim.NewNetwork(sim.Options{})
	var err error
	must := func(e error) {
		if err = errors.Join(err, e); err != nil {
			log.Fatal(err)
		}
	}
	a, err = net.NewLink()
	must(err)
	b, err = net.NewLink()
	must(err)
	ea, err = a.NewEndpoint(fabric.EndpointOptions{ID: 1})
	must(err)
	eb, err = b.NewEndpoint(fabric.EndpointOptions{ID: 2})
	must(err)
	must(ea.Connect(context.Background(), eb.Address()))
	must(eb.Connect(context.Background(), ea.Address()))
	return a, b, ea, eb
}

// A write and an atomic in one list; the target makes no call.
func ExampleEndpoint() {
	a, b, ea, _ := pair()
	defer a.Close()
	defer b.Close()
	src, _ := a.Alloc(64, fabric.AccessLocalWrite)
	defer src.Close()
	dst, _ := b.Alloc(64, fabric.AccessAll)
	defer dst.Close()
	copy(src.Bytes(), "payload")
	at := dst.Key() // a peer would have sent it

	n, err := ea.Post([]fabric.WR{
		{
			ID: 1, Op: fabric.OpWrite, // not signalled: it completes only if it fails
			Local:      []fabric.SGE{fabric.NewSGE(src.Bytes()[:7], src.LKey())},
			RemoteAddr: dst.Addr() + 8, RKey: at.RKey,
		},
		{
			ID: 2, Op: fabric.OpFetchAdd, Flags: fabric.FlagSignaled, Operand: 5,
			Local:      []fabric.SGE{fabric.NewSGE(src.Bytes()[56:], src.LKey())},
			RemoteAddr: dst.Addr(), RKey: at.RKey,
		},
	})
	fmt.Println(n, err) // n < 2 without an error means that the queue is full: poll and post the rest
	var cs [4]fabric.Completion
	for n = 0; n == 0; {
		n = a.Poll(cs[:])
	}
	fmt.Println(n, cs[0].ID, cs[0].Op, cs[0].Status)
	fmt.Println(string(dst.Bytes()[8:15]), dst.Bytes()[0]+dst.Bytes()[7])
	// Output:
	// 2 <nil>
	// 1 2 fetch-add ok
	// payload 5
}

// The first failure moves the endpoint to the error state, as on a queue pair.
func ExampleCompletion() {
	a, b, ea, _ := pair()
	defer a.Close()
	defer b.Close()
	src, _ := a.Alloc(64, 0)
	defer src.Close()
	sge := []fabric.SGE{fabric.NewSGE(src.Bytes()[:8], src.LKey())}
	_, _ = ea.Post([]fabric.WR{
		{ID: 1, Op: fabric.OpWrite, Local: sge, RemoteAddr: 0x1000, RKey: 99}, // no region has this key
		{ID: 2, Op: fabric.OpWrite, Local: sge, RemoteAddr: 0x1000, RKey: 99},
	})
	for seen := 0; seen < 2; {
		var cs [4]fabric.Completion
		for _, c := range cs[:a.Poll(cs[:])] {
			if c.Op == fabric.OpWrite {
				fmt.Println(c.ID, errors.Is(c.Err(), fabric.ErrRemoteAccess), errors.Is(c.Err(), fabric.ErrFlushed))
				seen++
			}
		}
	}
	_, err := ea.Post([]fabric.WR{{ID: 3, Op: fabric.OpWrite, Local: sge}})
	fmt.Println(err != nil)
	// Output:
	// 1 true false
	// 2 false true
	// true
}

// Protocols branch on a link's capabilities, never on its name.
func ExampleCaps() {
	a, b, _, _ := pair()
	defer a.Close()
	defer b.Close()
	caps := a.Caps()
	if caps.LastByteLast {
		fmt.Println("a flag in the last word of a block needs no write of its own")
	}
	if !caps.TargetProgress {
		fmt.Println("peers' requests need no call on this side")
	}
	// Output:
	// a flag in the last word of a block needs no write of its own
	// peers' requests need no call on this side
}

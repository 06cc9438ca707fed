package sim_test

import (
	"context"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
)

func ExampleNetwork() {
	net := sim.NewNetwork(sim.Options{Seed: 1, MaxDelay: 3, Pieces: 4})
	a, _ := net.NewLink()
	b, _ := net.NewLink()
	defer a.Close()
	defer b.Close()

	ea, _ := a.NewEndpoint(fabric.EndpointOptions{})
	eb, _ := b.NewEndpoint(fabric.EndpointOptions{})
	_ = ea.Connect(context.Background(), eb.Address())
	_ = eb.Connect(context.Background(), ea.Address())

	src, _ := a.Alloc(64, 0)
	dst, _ := b.Alloc(64, fabric.AccessRemoteWrite)
	defer src.Close()
	defer dst.Close()
	copy(src.Bytes(), "a write in pieces")

	_, _ = ea.Post([]fabric.WR{{
		ID: 1, Op: fabric.OpWrite, Flags: fabric.FlagSignaled,
		Local:      []fabric.SGE{fabric.NewSGE(src.Bytes()[:17], src.LKey())},
		RemoteAddr: dst.Addr(), RKey: dst.Key().RKey,
	}})
	var cs [1]fabric.Completion
	for a.Poll(cs[:]) == 0 {
	}
	fmt.Println(cs[0].Op, cs[0].Status, string(dst.Bytes()[:17]))
	// Output: write ok a write in pieces
}

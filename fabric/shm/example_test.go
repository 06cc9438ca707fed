//go:build linux

package shm_test

import (
	"context"
	"fmt"
	"log"

	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/shm"
)

// Two links in one process, as two processes of a host would have them. A write to
// memory of Alloc is a copy: it is there when Post returns.
func Example() {
	var ends [2]fabric.Link
	var eps [2]fabric.Endpoint
	for i := range ends {
		var err error
		if ends[i], err = shm.Open(shm.Options{}); err != nil {
			log.Fatal(err)
		}
		defer ends[i].Close()
		if eps[i], err = ends[i].NewEndpoint(fabric.EndpointOptions{}); err != nil {
			log.Fatal(err)
		}
	}
	var g errgroup.Group
	for i := range eps {
		g.Go(func() error { return eps[i].Connect(context.Background(), eps[1-i].Address()) })
	}
	if err := g.Wait(); err != nil {
		log.Fatal(err)
	}
	src, _ := ends[0].Alloc(64, 0)
	defer src.Close()
	dst, _ := ends[1].Alloc(64, fabric.AccessRemoteWrite)
	defer dst.Close()
	copy(src.Bytes(), "in shared memory")
	if _, err := eps[0].Post([]fabric.WR{{
		ID: 1, Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Local: []fabric.SGE{fabric.NewSGE(src.Bytes()[:16], src.LKey())},
		RemoteAddr: dst.Addr(), RKey: dst.Key().RKey,
	}}); err != nil {
		log.Fatal(err)
	}
	var cs [1]fabric.Completion
	for ends[0].Poll(cs[:]) == 0 {
		ends[1].Poll(nil) // takes in the segments that came with Alloc
	}
	fmt.Println(cs[0].Status, string(dst.Bytes()[:16]))
	// Output: ok in shared memory
}

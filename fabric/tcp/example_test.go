//go:build unix

package tcp_test

import (
	"context"
	"fmt"
	"log"

	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/tcp"
)

// Two links in one process, over the loopback interface. Each side's Poll carries
// out what the other has asked for.
func Example() {
	var ends [2]fabric.Link
	var eps [2]fabric.Endpoint
	for i := range ends {
		var err error
		if ends[i], err = tcp.Open(&tcp.Config{}); err != nil { // Bind: 127.0.0.1
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
	copy(src.Bytes(), "over a socket")
	if _, err := eps[0].Post([]fabric.WR{{
		ID: 1, Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Local: []fabric.SGE{fabric.NewSGE(src.Bytes()[:13], src.LKey())},
		RemoteAddr: dst.Addr(), RKey: dst.Key().RKey,
	}}); err != nil {
		log.Fatal(err)
	}
	var cs [1]fabric.Completion
	for ends[0].Poll(cs[:]) == 0 {
		ends[1].Poll(nil)
	}
	fmt.Println(cs[0].Status, string(dst.Bytes()[:13]))
	// Output: ok over a socket
}

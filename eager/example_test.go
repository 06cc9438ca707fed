package eager_test

import (
	"context"
	"fmt"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/gather"
)

// Two peers on a simulated network. In a program they are two processes, and
// addresses and set-ups travel by internal/wireup.
func Example() {
	net := sim.NewNetwork(sim.Options{})
	la, _ := net.NewLink()
	lb, _ := net.NewLink()
	ea, _ := la.NewEndpoint(fabric.EndpointOptions{})
	eb, _ := lb.NewEndpoint(fabric.EndpointOptions{})
	ctx := context.Background()
	_ = ea.Connect(ctx, eb.Address())
	_ = eb.Connect(ctx, ea.Address())

	a, _ := eager.Open(la, ea, eager.Options{})
	b, _ := eager.Open(lb, eb, eager.Options{})
	_ = a.Connect(b.Setup())
	_ = b.Connect(a.Setup())

	res, err := a.Send(eager.Envelope{Kind: 1}, []byte("hello, "), []byte("ring"))
	fmt.Println(res, err)

	buf := make([]byte, 64)
	h, ok, err := b.Recv(buf)
	fmt.Println(ok, err, h.Kind, string(buf[:h.Len]))

	_ = ea.Close()
	_ = eb.Close()
	_ = a.Close()
	_ = b.Close()
	_ = la.Close()
	_ = lb.Close()
	// Output:
	// accepted <nil>
	// true <nil> 1 hello, ring
}

// A message may be read where it lies, without copying.
func ExampleChannel_Lease() {
	net := sim.NewNetwork(sim.Options{})
	link, _ := net.NewLink()
	ea, _ := link.NewEndpoint(fabric.EndpointOptions{ID: 1})
	eb, _ := link.NewEndpoint(fabric.EndpointOptions{ID: 2})
	_ = ea.Connect(context.Background(), eb.Address())
	_ = eb.Connect(context.Background(), ea.Address())
	a, _ := eager.Open(link, ea, eager.Options{})
	b, _ := eager.Open(link, eb, eager.Options{})
	_ = a.Connect(b.Setup())
	_ = b.Connect(a.Setup())
	_, _ = a.Send(eager.Envelope{}, []byte("in place"))

	if l, h, ok, err := b.Lease(); ok && err == nil {
		for i := range l.Segments() {
			seg, _ := l.Segment(i)
			fmt.Println(h.Len, string(seg))
		}
		_ = l.Release()
		fmt.Println(l.Release())
	}

	_ = ea.Close()
	_ = eb.Close()
	_ = a.Close()
	_ = b.Close()
	_ = link.Close()
	// Output:
	// 8 in place
	// lease used after its release
}

// Many messages as one gather.
func ExampleChannel_StageVec() {
	net := sim.NewNetwork(sim.Options{})
	link, _ := net.NewLink()
	ea, _ := link.NewEndpoint(fabric.EndpointOptions{ID: 1})
	eb, _ := link.NewEndpoint(fabric.EndpointOptions{ID: 2})
	_ = ea.Connect(context.Background(), eb.Address())
	_ = eb.Connect(context.Background(), ea.Address())
	a, _ := eager.Open(link, ea, eager.Options{})
	b, _ := eager.Open(link, eb, eager.Options{})
	_ = a.Connect(b.Setup())
	_ = b.Connect(a.Setup())

	msgs := []gather.Message{{At: 1, Data: []byte("one")}, {At: 2, Data: []byte("two")}, {At: 5, Data: []byte("five")}}
	p := gather.NewPacker(a.GatherLimits(eager.Envelope{}), 0)
	n, err := p.Pack(msgs)
	fmt.Println(n, err)
	_, res, err := a.StageVec(eager.Envelope{Kind: uint8(gather.Seq)}, p.Pieces())
	fmt.Println(res, err)
	_, err = a.Flush()
	fmt.Println(err)

	if l, _, ok, err := b.Lease(); ok && err == nil {
		var s gather.Splitter
		fmt.Println(l.Split(&s))
		for s.Next() {
			seg, whole := s.Bytes()
			fmt.Println(s.Entry().At, string(seg), whole)
		}
		fmt.Println(l.Release())
		fmt.Println(s.Next(), s.Err())
	}

	_ = ea.Close()
	_ = eb.Close()
	_ = a.Close()
	_ = b.Close()
	_ = link.Close()
	// Output:
	// 3 <nil>
	// accepted <nil>
	// <nil>
	// <nil>
	// 1 one true
	// 2 two true
	// 5 five true
	// <nil>
	// false gather used after the release of its lease
}

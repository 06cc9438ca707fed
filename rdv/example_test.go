package rdv_test

import (
	"context"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/rdv"
	"github.com/seed33544411/rma/scatter"
)

// printer is a layer above that takes every message at one place.
type printer struct {
	name string
	dst  fabric.Region
}

func (p *printer) Match(m rdv.Incoming) ([]fabric.SGE, rdv.Verdict) {
	return []fabric.SGE{fabric.NewSGE(p.dst.Bytes()[:m.Size], p.dst.LKey())}, rdv.Take
}

func (p *printer) Received(m rdv.Incoming, err error) {
	fmt.Printf("%s: message %d is here: %q, %v\n", p.name, m.Pos, p.dst.Bytes()[:m.Size], err)
}
func (p *printer) Sent(token uint64, err error) {
	fmt.Printf("%s: transfer %d is over, %v\n", p.name, token, err)
}
func (p *printer) Advertised(rdv.Advert)            {}
func (p *printer) Revoked(rdv.Advert) bool          { return true }
func (p *printer) Filled(uint64, rdv.Answer, error) {}

// A message is announced, fetched by the receiver with a remote read, and the
// sender is told.
func Example() {
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	net := sim.NewNetwork(sim.Options{})
	var links [2]fabric.Link
	var eps [2]fabric.Endpoint
	var mem [2]fabric.Region
	var chs [2]*rdv.Channel
	for i, name := range []string{"a", "b"} {
		link, err := net.NewLink()
		check(err)
		links[i] = link
		mem[i], err = link.Alloc(4096, fabric.AccessAll)
		check(err)
		eps[i], err = link.NewEndpoint(fabric.EndpointOptions{})
		check(err)
		chs[i], err = rdv.Open(link, eps[i], &printer{name, mem[i]}, rdv.Options{})
		check(err)
	}
	for i := range 2 { // what wire-up does between processes
		check(eps[i].Connect(context.Background(), eps[1-i].Address()))
		check(chs[i].Connect(chs[1-i].Setup()))
	}

	n := copy(mem[0].Bytes(), "as long as you like")
	batch := scatter.Descriptor{
		Messages: []scatter.Message{{Pos: 41, Size: uint32(n)}},
		Regions:  []scatter.Region{{Addr: mem[0].Addr(), Len: uint32(n), RKey: mem[0].Key().RKey}},
	}
	_, result, err := chs[0].Send(&batch, 0, 7)
	check(err)
	fmt.Println("a: send:", result)

	cs := make([]fabric.Completion, 16)
	for !chs[0].Idle() || !chs[1].Idle() { // what the owner of a link does all the time
		for i := range 2 {
			for k := range links[i].Poll(cs) {
				chs[i].OnCompletion(&cs[k])
			}
			_, err := chs[i].Progress()
			check(err)
		}
	}
	for i := range 2 {
		check(eps[i].Close())
		links[i].Poll(cs)
	}
	for i := range 2 {
		check(chs[i].Close())
		check(mem[i].Close())
		check(links[i].Close())
	}
	// Output:
	// a: send: accepted
	// b: message 41 is here: "as long as you like", <nil>
	// a: transfer 7 is over, <nil>
}

package scatter_test

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/scatter"
)

// Three messages that lie one behind the other at the sender go to three places
// of the receiver in one read.
func Example() {
	sent := scatter.Descriptor{
		Messages: []scatter.Message{{Pos: 41, Size: 100}, {Pos: 42, Size: 200}, {Pos: 43, Size: 50}},
		Regions:  []scatter.Region{{Addr: 0x10000, Len: 350, RKey: 7}},
	}
	wire, err := sent.Append(nil)
	if err != nil {
		panic(err)
	}

	var got scatter.Descriptor
	if _, err := got.Parse(wire, scatter.Bounds{Messages: 64, Regions: 64}); err != nil {
		panic(err)
	}
	places := []fabric.SGE{{Addr: 0xa000, Len: 100, LKey: 1}, {Addr: 0xb000, Len: 200, LKey: 1}, {Addr: 0xc000, Len: 50, LKey: 1}}
	var plan scatter.Plan
	plan.Reset(places, scatter.Limits{MaxSGE: 16, MaxMessage: 1 << 30, MaxReads: 16})
	plan.Feed(got.Regions, 0)
	wrs, sges := make([]fabric.WR, 4), make([]fabric.SGE, 16)
	for _, w := range wrs[:plan.Next(fabric.OpRead, wrs, sges, 0)] {
		fmt.Printf("%v %d bytes at %#x into %d pieces\n", w.Op, w.Len(), w.RemoteAddr, len(w.Local))
	}
	// Output: read 350 bytes at 0x10000 into 3 pieces
}

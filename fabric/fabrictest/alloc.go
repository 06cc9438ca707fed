package fabrictest

import (
	"testing"

	"github.com/seed33544411/rma/fabric"
)

var allocCases = []Case{{"NoAllocation", noAllocation}}

// noAllocation: Post and Poll of small requests, on both sides, do not allocate on the Go
// heap.
func noAllocation(r *rig) {
	if r.f.NoAllocs != "" {
		r.Skip("Factory.NoAllocs: ", r.f.NoAllocs)
	}
	const depth = 32
	ca, _ := r.pair(fabric.EndpointOptions{Depth: depth})
	local, remote := r.a.region(4096, fabric.AccessAll), r.b.region(4096, fabric.AccessAll)
	var cs [8]fabric.Completion
	for _, x := range []struct {
		name  string
		op    fabric.Op
		flags fabric.Flags
		n     int
		both  bool // the target reports a completion as well
	}{
		{"write of 8", fabric.OpWrite, 0, 8, false},
		{"inline write of 8", fabric.OpWrite, fabric.FlagInline, 8, false},
		{"notified write of 8", fabric.OpWrite, fabric.FlagNotify, 8, true},
		{"write of 4096", fabric.OpWrite, 0, 4096, false},
		{"read of 8", fabric.OpRead, 0, 8, false},
		{"read of 4096", fabric.OpRead, 0, 4096, false},
		{"fetch-add", fabric.OpFetchAdd, 0, 8, false},
		{"compare-swap", fabric.OpCompareSwap, 0, 8, false},
	} {
		w := req(x.op, local, 0, x.n, remote, 0)
		w.Flags = x.flags | fabric.FlagSignaled
		ws := []fabric.WR{w}
		tries := 0
		bad := false
		one := func() {
			want := 1
			if x.both {
				want = 2
			}
			for posted := 0; posted == 0; {
				n, err := ca.ep.Post(ws)
				if posted = n; err != nil {
					bad = true
					return
				}
				if n == 0 {
					want -= r.a.link.Poll(cs[:])
				}
			}
			for tries = 0; want > 0 && tries < 50_000_000; tries++ {
				k := r.a.link.Poll(cs[:])
				for i := range k {
					bad = bad || cs[i].Status != fabric.StatusOK
				}
				want -= k + r.b.link.Poll(cs[:])
			}
			bad = bad || want != 0
		}
		for range 2 * depth { // uses every slot of the queue once
			one()
		}
		n := testing.AllocsPerRun(max(r.times(400), 50), one)
		if bad {
			r.Fatalf("%s: a request failed, was lost or came twice", x.name)
		}
		if n != 0 {
			r.Fatalf("%s: %v allocations an operation, want 0", x.name, n)
		}
	}
	r.idle()
}

package fabrictest

import (
	"errors"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

var atomicCases = []Case{
	{"FetchAdd", fetchAdd},
	{"CompareSwap", compareSwap},
	{"AtomicContention", contention},
	{"AtomicMisaligned", misaligned},
}

// atomicRig allocates a target word and a result word, each between canaries.
func atomicRig(r *rig) (c *conn, local, remote fabric.Region, lg, rg *testutil.Guarded) {
	c, _ = r.pair(fabric.EndpointOptions{})
	local, remote = r.a.region(4096, fabric.AccessAll), r.b.region(4096, fabric.AccessAll)
	return c, local, remote, testutil.Guard(local.Bytes(), 24, 8), testutil.Guard(remote.Bytes(), 4096-8, 8)
}

func fetchAdd(r *rig) {
	c, local, remote, lg, rg := atomicRig(r)
	clear(rg.Buf)
	var want uint64
	for _, add := range []uint64{1, 0, 41, 1 << 32, 1 << 63, 1 << 63, ^uint64(0), 5} {
		testutil.Store64(lg.Buf, 0x1111)
		w := req(fabric.OpFetchAdd, local, 24, 8, remote, 4096-8)
		w.Operand = add
		c.ok(w)
		if old := testutil.Load64(lg.Buf); old != want {
			r.Fatalf("fetch-add of %#x returned %#x, want %#x", add, old, want)
		}
		want += add
		if now := testutil.Load64(rg.Buf); now != want {
			r.Fatalf("fetch-add of %#x left %#x, want %#x", add, now, want)
		}
	}
	r.intact(lg, "fetch-add, local")
	r.intact(rg, "fetch-add, remote")
	r.idle()
}

func compareSwap(r *rig) {
	c, local, remote, lg, rg := atomicRig(r)
	testutil.Store64(rg.Buf, 7)
	now := uint64(7)
	for _, x := range []struct{ cmp, swap uint64 }{{7, 9}, {7, 10}, {9, ^uint64(0)}, {0, 3}, {^uint64(0), 0}, {0, 0}, {1 << 32, 4}, {0, 1 << 63}} {
		testutil.Store64(lg.Buf, 0x1111)
		w := req(fabric.OpCompareSwap, local, 24, 8, remote, 4096-8)
		w.Compare, w.Operand = x.cmp, x.swap
		c.ok(w)
		if old := testutil.Load64(lg.Buf); old != now {
			r.Fatalf("compare-swap %#x→%#x returned %#x, want %#x", x.cmp, x.swap, old, now)
		}
		if now == x.cmp {
			now = x.swap
		}
		if got := testutil.Load64(rg.Buf); got != now {
			r.Fatalf("compare-swap %#x→%#x left %#x, want %#x", x.cmp, x.swap, got, now)
		}
	}
	r.intact(lg, "compare-swap, local")
	r.intact(rg, "compare-swap, remote")
	r.idle()
}

// misaligned: atomics at misaligned addresses are refused at Post and have no effect.
func misaligned(r *rig) {
	c, local, remote, _, _ := atomicRig(r)
	g := testutil.Guard(remote.Bytes(), 0, 0)
	for _, op := range []fabric.Op{fabric.OpFetchAdd, fabric.OpCompareSwap} {
		for off := 1; off < 8; off++ {
			w := req(op, local, 24, 8, remote, 64+off)
			var n int
			var err error
			r.until("Post's verdict", func() bool { n, err = c.ep.Post([]fabric.WR{w}); return n > 0 || err != nil })
			if n != 0 || !errors.Is(err, fabric.ErrInvalidWR) {
				r.Fatalf("%v at a multiple of 8 plus %d: took %d, %v; want ErrInvalidWR", op, off, n, err)
			}
		}
	}
	r.idle()
	r.intact(g, "misaligned atomic")
	c.ok(req(fabric.OpWrite, local, 0, 8, remote, 0)) // the endpoint still works
}

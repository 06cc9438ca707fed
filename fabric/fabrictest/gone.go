package fabrictest

import (
	"errors"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

var goneCases = []Case{
	{"PeerCloses", func(r *rig) { peerGone(r, func(_, cb *conn) { r.must(cb.ep.Close(), "close") }, true) }},
	{"PeerLinkCloses", peerLinkCloses},
	{"PeerDies", peerDies},
	{"IdlePeerGone", idlePeerGone},
	{"CloseFlushes", closeFlushes},
	{"LinkClose", linkClose},
}

// tally follows the requests of one endpoint to their completions.
type tally struct {
	open map[uint64]bool
	ok   int
	down int
}

// count takes the completions that s reported of c; a status not allowed ends the test.
func (t *tally) count(r *rig, c *conn, allowed ...fabric.Status) {
	r.Helper()
	for _, d := range c.side.done {
		if d.EP != c.id {
			r.Fatalf("completion of another endpoint: %+v", d)
		}
		if d.Op == fabric.OpDown {
			if t.down++; t.down > 1 {
				r.Fatal("OpDown reported twice")
			}
			continue
		}
		if !t.open[d.ID] {
			r.Fatalf("not outstanding, or reported before: %+v", d)
		}
		delete(t.open, d.ID)
		good := false
		for _, st := range allowed {
			good = good || st == d.Status
		}
		if !good {
			r.Fatalf("ended with %q: %+v; allowed: %q", d.Status, d, allowed)
		}
		if d.Status == fabric.StatusOK {
			t.ok++
		}
	}
	c.side.done = c.side.done[:0]
}

// peerGone keeps requests in flight while the peer closes or dies, until nothing can be
// posted: all of them end, OpDown comes once, Post returns ErrDown, and another connection
// (unless it went down as well) continues to work.
func peerGone(r *rig, vanish func(ca, cb *conn), othersLive bool) {
	const n, slots = 256, 64
	ca, cb := r.pair(fabric.EndpointOptions{Depth: slots, PeerTimeout: r.f.PeerTimeout})
	var by *conn
	if othersLive {
		by, _ = r.pair(fabric.EndpointOptions{})
	}
	local, remote := r.a.region(n*slots, fabric.AccessAll), r.b.region(n*slots, fabric.AccessAll)
	t := tally{open: map[uint64]bool{}}
	allowed := []fabric.Status{fabric.StatusOK, fabric.StatusPeerGone, fabric.StatusFlushed}
	if !othersLive {
		// Its memory is withdrawn too: a target that is still there may refuse the request.
		allowed = append(allowed, fabric.StatusRemoteAccess)
	}
	i := 0
	post := func() error {
		op := []fabric.Op{fabric.OpWrite, fabric.OpRead, fabric.OpFetchAdd}[i%3]
		w := req(op, local, i%slots*n, n, remote, i%slots*n)
		if op == fabric.OpFetchAdd {
			w.Local[0].Len = 8
		}
		w.ID, w.Flags = r.id(), fabric.FlagSignaled
		k, err := ca.ep.Post([]fabric.WR{w})
		if k == 1 {
			t.open[w.ID] = true
			i++
		}
		return err
	}
	r.until("some requests", func() bool {
		r.must(post(), "post")
		t.count(r, ca, fabric.StatusOK)
		return t.ok >= 20
	})
	for range slots {
		r.must(post(), "post")
	}
	vanish(ca, cb)
	start := time.Now()
	var perr error
	r.until("Post says ErrDown", func() bool {
		perr = post()
		t.count(r, ca, allowed...)
		return perr != nil
	})
	if !errors.Is(perr, fabric.ErrDown) {
		r.Fatalf("post to a peer that is gone: %v, want ErrDown", perr)
	}
	if took, limit := time.Since(start), 20*r.f.PeerTimeout+r.f.Deadline/2; took > limit {
		r.Fatalf("noticed after %v, PeerTimeout is %v", took, r.f.PeerTimeout)
	}
	r.until("outstanding requests and OpDown", func() bool {
		t.count(r, ca, allowed...)
		return len(t.open) == 0 && t.down == 1
	})
	for range 200 {
		r.a.poll()
	}
	t.count(r, ca, allowed...) // nothing is reported twice
	if ca.ep.Err() == nil {
		r.Fatal("Err is nil after OpDown")
	}
	for _, d := range r.b.done {
		if d.Op != fabric.OpDown {
			r.Fatalf("the side that went reports %+v", d)
		}
	}
	r.b.done = r.b.done[:0]
	if othersLive {
		by.ok(req(fabric.OpWrite, local, 0, 8, remote, 0))
		// The same two links can be connected again.
		again, _ := r.pair(fabric.EndpointOptions{})
		again.ok(req(fabric.OpWrite, local, 0, 8, remote, 0))
	}
}

func peerLinkCloses(r *rig) {
	peerGone(r, func(_, cb *conn) {
		if err := cb.link.Close(); !errors.Is(err, fabric.ErrRegionsOpen) {
			r.Fatalf("closing a link with an open region: %v, want ErrRegionsOpen", err)
		}
		r.must(cb.link.Close(), "close again")
	}, false)
}

func peerDies(r *rig) {
	if r.f.Kill == nil {
		r.Skip("Factory.Kill: a peer of this link dies abruptly in a process of its own only; see the link's two-process tests")
	}
	peerGone(r, func(_, cb *conn) { r.f.Kill(r, cb.link) }, false)
}

// idlePeerGone: as peerGone, without a request outstanding.
func idlePeerGone(r *rig) {
	if !r.f.IdleDown {
		r.Skip("Factory.IdleDown: an idle endpoint of this link does not notice that its peer is gone")
	}
	ca, cb := r.pair(fabric.EndpointOptions{})
	r.must(cb.ep.Close(), "close")
	c := ca.take(1)[0]
	if c.Op != fabric.OpDown || c.EP != ca.id || c.Status == fabric.StatusOK || c.ID != 0 {
		r.Fatalf("peer closed: %+v, want OpDown", c)
	}
	if ca.ep.Err() == nil {
		r.Fatal("Err is nil after OpDown")
	}
	if n, err := ca.ep.Post([]fabric.WR{{Op: fabric.OpWrite}}); n != 0 || !errors.Is(err, fabric.ErrDown) {
		r.Fatalf("post: %d, %v; want ErrDown", n, err)
	}
	r.idle()
}

// closeFlushes: Close ends the outstanding requests and reports nothing else.
func closeFlushes(r *rig) {
	local, remote := r.a.region(1<<20, fabric.AccessAll), r.b.region(1<<20, fabric.AccessAll)
	by, _ := r.pair(fabric.EndpointOptions{})
	for round := range r.times(40) {
		ca, cb := r.pair(fabric.EndpointOptions{})
		g := testutil.Guard(remote.Bytes(), 0, 1<<19)
		t := tally{open: map[uint64]bool{}}
		for i := range 1 + round%40 {
			w := req(fabric.OpWrite, local, 0, 1<<(i%18), remote, 0)
			if i%3 == 1 {
				w.Op = fabric.OpRead
				w.Local[0].Addr += 1 << 19
			}
			w.ID, w.Flags = r.id(), fabric.FlagSignaled
			if n, err := ca.ep.Post([]fabric.WR{w}); err != nil {
				r.Fatalf("post: %v", err)
			} else if n == 1 {
				t.open[w.ID] = true
			}
			if r.rng.IntN(10) == 0 {
				r.b.poll()
			}
		}
		r.must(ca.ep.Close(), "close")
		r.must(ca.ep.Close(), "close again")
		if n, err := ca.ep.Post([]fabric.WR{{Op: fabric.OpWrite}}); n != 0 || !errors.Is(err, fabric.ErrDown) {
			r.Fatalf("post after Close: %d, %v; want ErrDown", n, err)
		}
		if ca.ep.Err() == nil {
			r.Fatal("Err is nil after Close")
		}
		r.until("flushed requests", func() bool {
			t.count(r, ca, fabric.StatusOK, fabric.StatusFlushed)
			return len(t.open) == 0
		})
		for range 100 {
			r.a.poll()
			r.b.poll()
		}
		t.count(r, ca)
		if t.down > 0 {
			r.Fatal("OpDown for an endpoint that its owner closed")
		}
		for _, d := range r.b.done {
			if d.Op != fabric.OpDown || d.EP != cb.id {
				r.Fatalf("peer of a closed endpoint: %+v", d)
			}
		}
		r.b.done = r.b.done[:0]
		r.must(cb.ep.Close(), "close")
		r.intact(g, "closing with writes in flight")
		by.ok(req(fabric.OpWrite, local, 0, 8, remote, 0))
	}
	r.idle()
}

// linkClose: Close is idempotent and closes everything that is open; the link cannot be
// used afterwards.
func linkClose(r *rig) {
	ca, _ := r.pair(fabric.EndpointOptions{})
	reg, err := r.a.link.Alloc(100, fabric.AccessAll)
	r.must(err, "alloc")
	mem := testutil.Scratch(r, 100)
	reg2, err := r.a.link.Register(mem, fabric.AccessAll)
	r.must(err, "register")
	if err := r.a.link.Close(); !errors.Is(err, fabric.ErrRegionsOpen) {
		r.Fatalf("close with regions open: %v, want ErrRegionsOpen", err)
	}
	r.must(r.a.link.Close(), "close again")
	r.must(reg.Close(), "close region after its link")
	r.must(reg2.Close(), "close region after its link")
	if _, err := r.a.link.Alloc(100, 0); err == nil {
		r.Fatal("Alloc on a closed link")
	}
	if _, err := r.a.link.Register(mem, 0); err == nil {
		r.Fatal("Register on a closed link")
	}
	if _, err := r.a.link.NewEndpoint(fabric.EndpointOptions{}); err == nil {
		r.Fatal("NewEndpoint on a closed link")
	}
	if n, err := ca.ep.Post([]fabric.WR{{Op: fabric.OpWrite}}); n != 0 || err == nil {
		r.Fatalf("Post on a closed link: %d, %v", n, err)
	}
	r.must(ca.ep.Close(), "close endpoint after its link")
}

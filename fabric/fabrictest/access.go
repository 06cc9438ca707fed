package fabrictest

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

var accessCases = []Case{
	{"RemoteAccess", remoteAccess},
	{"LocalAccess", localAccess},
	{"RegionClose", regionClose},
}

// sick posts ws, whose last request but one must end with one of sts, and checks the
// consequences: requests posted behind it are flushed, the endpoint goes down and reports
// it once, and at most the peer's endpoint goes down with it.
func (r *rig) sick(c, peer *conn, ws []fabric.WR, sts []fabric.Status, what string) {
	r.Helper()
	bad, behind := ws[len(ws)-2].ID, ws[len(ws)-1].ID
	var first, flushed, down int
	posted := 1 // number of requests posted of behind
	end := time.Now().Add(r.f.Deadline)
	for list := ws; len(list) > 0; {
		if time.Now().After(end) {
			r.Fatalf("%s: not posted within %v", what, r.f.Deadline)
		}
		n, err := c.ep.Post(list)
		list = list[n:]
		if errors.Is(err, fabric.ErrDown) && len(list) == 1 {
			posted = 0 // a short Post, and the bad request has failed already
			break
		}
		r.must(err, what+": post")
		r.a.poll()
		r.b.poll()
	}
	count := func() bool {
		for _, d := range c.side.done {
			switch {
			case d.EP != c.id:
				r.Fatalf("%s: completion of another endpoint: %+v", what, d)
			case d.Op == fabric.OpDown:
				down++
			case d.ID == bad:
				first++
				ok := false
				for _, st := range sts {
					ok = ok || d.Status == st
				}
				if !ok {
					r.Fatalf("%s: ended with %q, want %q", what, d.Status, sts)
				}
			case d.ID == behind:
				flushed++
				if d.Status != fabric.StatusFlushed {
					r.Fatalf("%s: request behind it ended with %q", what, d.Status)
				}
			case d.Status != fabric.StatusFlushed:
				r.Fatalf("%s: unexpected completion %+v", what, d)
			}
		}
		c.side.done = c.side.done[:0]
		return first == 1 && flushed == posted && down == 1
	}
	r.until(what+": failure, flush and OpDown", count)
	for range 100 {
		r.a.poll()
		r.b.poll()
	}
	if count(); first != 1 || flushed != posted || down != 1 {
		r.Fatalf("%s: reported %d times, request behind it %d times, OpDown %d times", what, first, flushed, down)
	}
	for _, d := range peer.side.done {
		if d.EP != peer.id || d.Op != fabric.OpDown {
			r.Fatalf("%s: the target reports %+v", what, d)
		}
	}
	if len(peer.side.done) == 0 { // it may learn later that the connection has ended
		peer.side.down = peer.id
	}
	peer.side.done = peer.side.done[:0]
	if err := c.ep.Err(); err == nil || !errors.Is(err, sts[0].Err()) && len(sts) == 1 {
		r.Fatalf("%s: endpoint's Err is %v", what, err)
	}
	if n, err := c.ep.Post([]fabric.WR{{Op: fabric.OpWrite}}); n != 0 || !errors.Is(err, fabric.ErrDown) {
		r.Fatalf("%s: post afterwards took %d, %v; want ErrDown", what, n, err)
	}
}

// attack is a request that the target must refuse.
type attack struct {
	name string
	op   fabric.Op
	mut  func(w *fabric.WR)
}

func remoteAccess(r *rig) {
	v := newVictim(r)
	by, byPeer := r.pair(fabric.EndpointOptions{})
	local := r.a.region(victimPage, fabric.AccessAll)
	byReg := r.b.region(64, fabric.AccessAll)
	for i, at := range v.attacks() {
		what := fmt.Sprintf("%v, %s", at.op, at.name)
		c, peer := r.pair(fabric.EndpointOptions{})
		lg := testutil.Guard(local.Bytes(), 128, 0)
		bad := v.request(at, local)
		if i%2 == 0 { // a failure is reported even if no completion was requested
			bad.Flags |= fabric.FlagSignaled
		}
		good := req(fabric.OpWrite, local, 1000, 8, byReg, 8)
		behind := req(fabric.OpWrite, local, 1000, 50, v.target, 100)
		behind.Flags, behind.ID = fabric.FlagSignaled|fabric.FlagFence, r.id()
		r.sick(c, peer, []fabric.WR{good, bad, behind}, []fabric.Status{fabric.StatusRemoteAccess}, what)
		r.verify(v.g.Buf, 3, 0, what+": target")
		r.intact(v.g, what+": target")
		r.intact(v.ag, what+": allocated target")
		r.intact(lg, what+": local") // a refused read or atomic stores nothing
		// Another endpoint still works, in both directions.
		by.ok(req(fabric.OpWrite, local, 2000, 8, byReg, 0))
		byPeer.ok(req(fabric.OpRead, byReg, 16, 8, local, 2000))
		r.must(c.ep.Close(), "close")
		r.must(peer.ep.Close(), "close")
		r.idle()
	}
}

// victim is memory of side b with keys that lack rights.
type victim struct {
	*rig
	g      *testutil.Guarded // registered: target, and with the rights that the names say
	target fabric.Region
	key    fabric.RemoteKey // of target

	none, noWrite, noRead, noAtomic, stale uint32 // keys of the same memory

	alloc fabric.Region
	ag    *testutil.Guarded // in alloc
}

const victimPage, victimBytes = 4096, 1000

func newVictim(r *rig) *victim {
	// The target registers only a part of its memory, so that one byte beyond it shows.
	v := &victim{rig: r, g: testutil.Guard(testutil.Scratch(r, 3*victimPage), victimPage, victimBytes)}
	testutil.Fill(v.g.Buf, 3, 0)
	register := func(acc fabric.Access) fabric.Region {
		x, err := r.b.link.Register(v.g.Buf, acc)
		r.must(err, "register")
		r.Cleanup(func() { r.must(x.Close(), "close region") })
		return x
	}
	v.target = register(fabric.AccessAll)
	v.key = v.target.Key()
	if v.key.Addr != fabric.Addr(v.g.Buf) || v.key.Len != victimBytes {
		r.Fatalf("key of %d bytes at %#x: %+v", victimBytes, fabric.Addr(v.g.Buf), v.key)
	}
	v.none = register(fabric.AccessLocalWrite).Key().RKey
	v.noWrite = register(fabric.AccessAll &^ fabric.AccessRemoteWrite).Key().RKey
	v.noRead = register(fabric.AccessAll &^ fabric.AccessRemoteRead).Key().RKey
	v.noAtomic = register(fabric.AccessAll &^ fabric.AccessRemoteAtomic).Key().RKey
	stale, err := r.b.link.Register(v.g.Buf, fabric.AccessAll)
	r.must(err, "register")
	v.stale = stale.Key().RKey
	r.must(stale.Close(), "close region")
	r.must(stale.Close(), "close region again")
	v.alloc = r.b.region(victimPage+victimBytes, fabric.AccessAll)
	v.ag = testutil.Guard(v.alloc.Bytes(), 0, 0)
	return v
}

// attacks lists what a peer may try.
func (v *victim) attacks() (attacks []attack) {
	for _, op := range []fabric.Op{fabric.OpWrite, fabric.OpRead, fabric.OpFetchAdd, fabric.OpCompareSwap} {
		add := func(name string, mut func(w *fabric.WR)) { attacks = append(attacks, attack{name, op, mut}) }
		unit := uint64(1)
		if op == fabric.OpFetchAdd || op == fabric.OpCompareSwap {
			unit = 8
		}
		end, allocEnd := v.key.Addr+victimBytes, v.alloc.Addr()+victimPage+victimBytes
		add("wrong key", func(w *fabric.WR) { w.RKey ^= 0x00a5a500 })
		add("key 0", func(w *fabric.WR) { w.RKey = 0 })
		add("stale key", func(w *fabric.WR) { w.RKey = v.stale })
		add("one before", func(w *fabric.WR) { w.RemoteAddr = v.key.Addr - unit })
		add("one behind", func(w *fabric.WR) { w.RemoteAddr = end - w.Len() + unit })
		add("far away", func(w *fabric.WR) { w.RemoteAddr = 1 << 12 })
		add("wraps", func(w *fabric.WR) { w.RemoteAddr = 1<<64 - 8 })
		add("address 0", func(w *fabric.WR) { w.RemoteAddr = 0 })
		add("one behind allocated", func(w *fabric.WR) { w.RKey, w.RemoteAddr = v.alloc.Key().RKey, allocEnd-w.Len()+unit })
		add("one before allocated", func(w *fabric.WR) { w.RKey, w.RemoteAddr = v.alloc.Key().RKey, v.alloc.Addr()-unit })
		add("no rights", func(w *fabric.WR) { w.RKey = v.none })
		switch op {
		case fabric.OpWrite:
			add("no write right", func(w *fabric.WR) { w.RKey = v.noWrite })
			add("one behind, inline", func(w *fabric.WR) { w.RemoteAddr, w.Flags = end-w.Len()+1, w.Flags|fabric.FlagInline })
			add("one behind, notified", func(w *fabric.WR) { w.RemoteAddr, w.Flags = end-w.Len()+1, w.Flags|fabric.FlagNotify })
		case fabric.OpRead:
			add("no read right", func(w *fabric.WR) { w.RKey = v.noRead })
		default:
			add("no atomic right", func(w *fabric.WR) { w.RKey = v.noAtomic })
		}
	}
	return attacks
}

// request returns the request of an attack.
func (v *victim) request(at attack, local fabric.Region) fabric.WR {
	bad := req(at.op, local, 128, 8, v.target, 0)
	if at.op == fabric.OpRead || at.op == fabric.OpWrite {
		bad.Local = []fabric.SGE{sge(local, 128, 200)}
		if v.a.caps.MaxSGE > 1 { // else these are two requests of the wire
			bad.Local = []fabric.SGE{sge(local, 128, 100), sge(local, 300, 100)}
		}
	}
	bad.RemoteAddr = (v.key.Addr + 7) &^ 7
	bad.Operand, bad.ID = 1, v.id()
	at.mut(&bad)
	if bad.Flags&fabric.FlagInline != 0 {
		bad.Local = []fabric.SGE{sge(local, 128, min(100, v.a.caps.MaxInline))}
		bad.RemoteAddr = v.key.Addr + victimBytes - bad.Len() + 1
	}
	return bad
}

// localAccess: pieces with a wrong key, out of bounds, or without the right to write.
func localAccess(r *rig) {
	const page, n = 4096, 1000
	mem := testutil.Scratch(r, 3*page)
	g := testutil.Guard(mem, page, n)
	testutil.Fill(g.Buf, 3, 0)
	local, err := r.a.link.Register(g.Buf, fabric.AccessAll)
	r.must(err, "register")
	r.Cleanup(func() { r.must(local.Close(), "close region") })
	ro, err := r.a.link.Register(g.Buf, fabric.AccessRemoteRead)
	r.must(err, "register")
	r.Cleanup(func() { r.must(ro.Close(), "close region") })
	stale, err := r.a.link.Register(g.Buf, fabric.AccessAll)
	r.must(err, "register")
	staleKey := stale.LKey()
	r.must(stale.Close(), "close region")
	remote := r.b.region(page, fabric.AccessAll)
	rg := testutil.Guard(remote.Bytes(), 0, 0)

	for _, x := range []struct {
		name  string
		piece func() fabric.SGE
		ops   []fabric.Op
	}{
		{"wrong key", func() fabric.SGE { s := sge(local, 8, 8); s.LKey ^= 0x00a5a500; return s },
			[]fabric.Op{fabric.OpWrite, fabric.OpRead, fabric.OpFetchAdd}},
		{"stale key", func() fabric.SGE { s := sge(local, 8, 8); s.LKey = staleKey; return s },
			[]fabric.Op{fabric.OpWrite, fabric.OpRead, fabric.OpCompareSwap}},
		{"one before", func() fabric.SGE { s := sge(local, 0, 8); s.Addr--; return s },
			[]fabric.Op{fabric.OpWrite, fabric.OpRead}},
		{"one behind", func() fabric.SGE { s := sge(local, n-8, 8); s.Addr++; return s },
			[]fabric.Op{fabric.OpWrite, fabric.OpRead, fabric.OpFetchAdd}},
		{"not to be written to", func() fabric.SGE { return sge(ro, 8, 8) },
			[]fabric.Op{fabric.OpRead, fabric.OpFetchAdd, fabric.OpCompareSwap}},
	} {
		for _, op := range x.ops {
			what := fmt.Sprintf("%v, local piece %s", op, x.name)
			c, peer := r.pair(fabric.EndpointOptions{})
			bad := req(op, local, 0, 8, remote, 64)
			bad.Local = []fabric.SGE{x.piece()}
			bad.ID, bad.Flags, bad.Operand = r.id(), fabric.FlagSignaled, 1
			word := testutil.Load64(remote.Bytes()[64:])
			behind := req(fabric.OpWrite, local, 0, 8, remote, 128)
			behind.ID, behind.Flags = r.id(), fabric.FlagSignaled|fabric.FlagFence
			r.sick(c, peer, []fabric.WR{bad, behind}, append([]fabric.Status{fabric.StatusLocalProtection}, r.f.LocalErrors...), what)
			r.verify(g.Buf, 3, 0, what+": local")
			r.intact(g, what+": local")
			if now := testutil.Load64(remote.Bytes()[64:]); op == fabric.OpFetchAdd && r.f.AtomicBeforeLocal && now == word+1 {
				testutil.Store64(remote.Bytes()[64:], word)
			}
			r.intact(rg, what+": remote")
			r.must(c.ep.Close(), "close")
			r.must(peer.ep.Close(), "close")
			r.idle()
		}
	}
	// Local reading needs no AccessLocalWrite.
	c, _ := r.pair(fabric.EndpointOptions{})
	c.ok(req(fabric.OpWrite, ro, 0, n, remote, 0))
	r.verify(remote.Bytes()[:n], 3, 0, "write from a read-only region")
}

// regionClose: after Close the memory is not accessible, nor is new memory at the same
// address, and other regions are unaffected.
func regionClose(r *rig) {
	const n = 4096
	local := r.a.region(n, fabric.AccessAll)
	keep := r.b.region(n, fabric.AccessAll)
	for i := range r.times(20) {
		c, peer := r.pair(fabric.EndpointOptions{})
		reg, err := r.b.link.Alloc(n, fabric.AccessAll)
		r.must(err, "alloc")
		testutil.Fill(local.Bytes(), uint64(i+1), 0)
		c.ok(req(fabric.OpWrite, local, 0, n, reg, 0))
		r.verify(reg.Bytes(), uint64(i+1), 0, "write")
		old := reg.Key()
		r.must(reg.Close(), "close region")
		again := r.b.region(n, fabric.AccessAll) // often at the same address
		g := testutil.Guard(again.Bytes(), 0, 0)
		bad := fabric.WR{Op: fabric.OpWrite, Local: []fabric.SGE{sge(local, 0, 64)}, RemoteAddr: old.Addr, RKey: old.RKey, ID: r.id(), Flags: fabric.FlagSignaled}
		behind := req(fabric.OpWrite, local, 0, 8, keep, 0)
		behind.ID, behind.Flags = r.id(), fabric.FlagSignaled|fabric.FlagFence
		r.sick(c, peer, []fabric.WR{bad, behind}, []fabric.Status{fabric.StatusRemoteAccess}, "write to a closed region")
		r.intact(g, "memory after a closed region")
		r.must(c.ep.Close(), "close")
		r.must(peer.ep.Close(), "close")
		r.idle()
	}
}

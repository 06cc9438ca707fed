package fabrictest

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

var dataCases = []Case{
	{"WriteSizes", func(r *rig) { sizes(r, fabric.OpWrite) }},
	{"ReadSizes", func(r *rig) { sizes(r, fabric.OpRead) }},
	{"Gather", func(r *rig) { pieces(r, fabric.OpWrite) }},
	{"Scatter", func(r *rig) { pieces(r, fabric.OpRead) }},
	{"RegisteredMemory", registeredMemory},
	{"Inline", inline},
	{"ZeroLength", zeroLength},
	{"Notify", notify},
}

const maxSize = 1 << 20

// sizeGrid is every size around a power of two up to maxSize.
func sizeGrid() []int {
	out := []int{1, 2, 3}
	for p := 4; p <= maxSize; p *= 2 {
		out = append(out, p-1, p, p+1)
	}
	return out[:len(out)-1] // maxSize+1 does not fit
}

// sizes moves every size, from and to unaligned offsets that cross pages and reach the end
// of the region.
func sizes(r *rig, op fabric.Op) {
	ca, _ := r.pair(fabric.EndpointOptions{})
	const room = maxSize + 3*4096
	local, remote := r.a.region(room, fabric.AccessAll), r.b.region(room, fabric.AccessAll)
	src, dst := local, remote
	if op == fabric.OpRead {
		src, dst = remote, local
	}
	for i, n := range sizeGrid() {
		if r.f.Slow > 1 && n > 70000 && n&(n-1) != 0 {
			continue
		}
		offs := [][2]int{{0, 0}, {4096 - 1, 2*4096 - n%3 - 1}, {room - n, 8}, {5, room - n}}
		for k, o := range offs {
			if n > 100000 && k != i%len(offs) {
				continue
			}
			seed := uint64(n*10 + k + 1)
			testutil.Fill(src.Bytes()[o[0]:o[0]+n], seed, 0)
			lo, hi := max(0, o[1]-64), min(room, o[1]+n+64)
			g := testutil.Guard(dst.Bytes()[lo:hi], o[1]-lo, n)
			clear(g.Buf)
			what := fmt.Sprintf("%v of %d bytes, source offset %d, target offset %d", op, n, o[0], o[1])
			if op == fabric.OpWrite {
				ca.ok(req(op, local, o[0], n, remote, o[1]))
			} else {
				ca.ok(req(op, local, o[1], n, remote, o[0]))
			}
			r.verify(g.Buf, seed, 0, what)
			r.intact(g, what)
			r.verify(src.Bytes()[o[0]:o[0]+n], seed, 0, "source after "+what)
		}
	}
	r.idle()
}

// pieces moves lists of 1 to MaxSGE pieces, of one more and of many more, with empty ones
// among them.
func pieces(r *rig, op fabric.Op) {
	ca, _ := r.pair(fabric.EndpointOptions{})
	const room = 1 << 18
	local, remote := r.a.region(room, fabric.AccessAll), r.b.region(room, fabric.AccessAll)
	m := r.a.caps.MaxSGE
	if m < 1 {
		r.Fatalf("Caps.MaxSGE is %d", m)
	}
	counts := []int{1, 2, 3, m - 1, m, m + 1, m + 2, 2*m - 1, 2 * m, 2*m + 1, 5*m + 3}
	for round := range r.times(60) {
		k := counts[round%len(counts)]
		if k < 1 {
			continue
		}
		// Pieces at random places, not overlapping, in random order of address: slot i of the
		// region is cut into equal parts.
		slot := room / k
		var list []fabric.SGE
		var bufs []*testutil.Guarded
		total := 0
		for _, i := range r.rng.Perm(k) {
			n := min(r.rng.IntN(slot-16), r.rng.IntN(300))
			if r.rng.IntN(8) == 0 {
				n = 0
			}
			off := r.rng.IntN(slot - n)
			g := testutil.Guard(local.Bytes()[i*slot:(i+1)*slot], off, n)
			list = append(list, sge(local, i*slot+off, n))
			bufs = append(bufs, g)
			total += n
		}
		roff := r.rng.IntN(room - total)
		seed := uint64(round + 1)
		g := testutil.Guard(remote.Bytes(), roff, total)
		what := fmt.Sprintf("%v of %d bytes in %d pieces (MaxSGE %d)", op, total, k, m)
		if op == fabric.OpRead {
			testutil.Fill(g.Buf, seed, 0)
		} else {
			clear(g.Buf)
		}
		at := 0
		for _, b := range bufs {
			if op == fabric.OpWrite {
				testutil.Fill(b.Buf, seed, uint64(at))
			} else {
				clear(b.Buf)
			}
			at += len(b.Buf)
		}
		ca.ok(fabric.WR{Op: op, Local: list, RemoteAddr: remote.Addr() + uint64(roff), RKey: remote.Key().RKey})
		r.verify(g.Buf, seed, 0, what+", remote")
		r.intact(g, what+", remote")
		at = 0
		for i, b := range bufs {
			r.verify(b.Buf, seed, uint64(at), fmt.Sprintf("%s, piece %d", what, i))
			r.intact(b, fmt.Sprintf("%s, piece %d", what, i))
			at += len(b.Buf)
		}
	}
	r.idle() // a split request has one completion
}

// registeredMemory registers private memory instead of memory from Alloc, on each side.
func registeredMemory(r *rig) {
	ca, cb := r.pair(fabric.EndpointOptions{})
	const n = 3*4096 + 77
	for _, reg := range []struct{ la, lb fabric.Region }{
		{r.a.registered(n, fabric.AccessAll), r.b.registered(n, fabric.AccessAll)},
		{r.a.registered(n, fabric.AccessAll), r.b.region(n, fabric.AccessAll)},
		{r.a.region(n, fabric.AccessAll), r.b.registered(n, fabric.AccessAll)},
	} {
		for i, c := range []*conn{ca, cb} {
			local, remote := reg.la, reg.lb
			if i == 1 {
				local, remote = remote, local
			}
			g := testutil.Guard(remote.Bytes(), 33, n-100)
			testutil.Fill(local.Bytes(), 5, 0)
			c.ok(req(fabric.OpWrite, local, 7, n-100, remote, 33))
			r.verify(g.Buf, 5, 7, "write")
			r.intact(g, "write")

			testutil.Fill(remote.Bytes(), 6, 0)
			g = testutil.Guard(local.Bytes(), 50, n-60)
			c.ok(req(fabric.OpRead, local, 50, n-60, remote, 9))
			r.verify(g.Buf, 6, 9, "read")
			r.intact(g, "read")

			w := req(fabric.OpFetchAdd, local, 8, 8, remote, 16)
			testutil.Store64(remote.Bytes()[16:], 40)
			w.Operand = 2
			c.ok(w)
			if old, now := testutil.Load64(local.Bytes()[8:]), testutil.Load64(remote.Bytes()[16:]); old != 40 || now != 42 {
				r.Fatalf("fetch-add of 2 to 40: returned %d, left %d", old, now)
			}
		}
	}
}

// inline checks that the source may be reused as soon as Post returns, and needs no key.
func inline(r *rig) {
	ca, _ := r.pair(fabric.EndpointOptions{})
	m := r.a.caps.MaxInline
	if m < 8 {
		r.Fatalf("Caps.MaxInline is %d, protocols need 8", m)
	}
	remote := r.b.region(m+200, fabric.AccessAll)
	src := testutil.Scratch(r, m+16) // registered nowhere
	for _, n := range []int{1, 7, 8, 9, m / 2, m - 1, m} {
		for _, parts := range []int{1, 2} {
			g := testutil.Guard(remote.Bytes(), 61, n)
			clear(g.Buf)
			testutil.Fill(src[:n], uint64(n), 0)
			w := req(fabric.OpWrite, remote, 0, 0, remote, 61)
			w.Local = []fabric.SGE{fabric.NewSGE(src[:n/parts], 0xdead), fabric.NewSGE(src[n/parts:n], 0xdead)}
			w.Flags = fabric.FlagInline | fabric.FlagSignaled
			w.ID = r.id()
			ca.post(w)
			clear(src)
			if c := ca.take(1)[0]; c.ID != w.ID || c.Status != fabric.StatusOK {
				r.Fatalf("inline write of %d bytes: %+v", n, c)
			}
			what := fmt.Sprintf("inline write of %d bytes in %d pieces", n, parts)
			r.verify(g.Buf, uint64(n), 0, what)
			r.intact(g, what)
		}
	}
}

// zeroLength: requests of zero bytes succeed without effect at the start and the end of a
// region, and outside of any region: the key is not checked.
func zeroLength(r *rig) {
	ca, _ := r.pair(fabric.EndpointOptions{})
	local, remote := r.a.region(4096, fabric.AccessAll), r.b.region(4096, fabric.AccessAll)
	g := testutil.Guard(remote.Bytes(), 0, 0)
	l := testutil.Guard(local.Bytes(), 0, 0)
	for _, off := range []int{0, 1, 4096} {
		for _, op := range []fabric.Op{fabric.OpWrite, fabric.OpRead} {
			for _, list := range [][]fabric.SGE{nil, {sge(local, 5, 0)}, {{}, {}}} {
				ca.ok(fabric.WR{Op: op, Local: list, RemoteAddr: remote.Addr() + uint64(off), RKey: remote.Key().RKey})
			}
		}
	}
	ca.ok(fabric.WR{Op: fabric.OpWrite, Flags: fabric.FlagInline, RemoteAddr: remote.Addr(), RKey: remote.Key().RKey})
	for _, op := range []fabric.Op{fabric.OpWrite, fabric.OpRead} {
		ca.ok(fabric.WR{Op: op, RemoteAddr: remote.Addr() + 4097, RKey: remote.Key().RKey})
		ca.ok(fabric.WR{Op: op, RemoteAddr: 1, RKey: ^remote.Key().RKey})
		ca.ok(fabric.WR{Op: op})
	}
	r.intact(g, "zero length, remote")
	r.intact(l, "zero length, local")
	r.idle()
}

// notify checks notifications: immediate value, length, order, one each, after the data.
func notify(r *rig) {
	ca, cb := r.pair(fabric.EndpointOptions{})
	const slots, room = 16, 2048
	local, remote := r.a.region(slots*room, fabric.AccessAll), r.b.region(slots*room, fabric.AccessAll)
	total := r.times(400)
	sent := 0
	for got := 0; got < total; {
		if sent < total && sent-got < slots {
			n := sent * 37 % room
			off := sent % slots * room
			testutil.Fill(local.Bytes()[off:off+n], uint64(sent), 0)
			w := req(fabric.OpWrite, local, off, n, remote, off)
			w.Flags, w.Imm = fabric.FlagNotify, ^uint32(sent)
			switch sent % 3 {
			case 1:
				w.Flags |= fabric.FlagSignaled
				w.ID = r.id()
			case 2:
				if n <= r.a.caps.MaxInline {
					w.Flags |= fabric.FlagInline
				}
			}
			ca.post(w)
			if w.Flags&fabric.FlagSignaled != 0 {
				if c := ca.take(1)[0]; c.ID != w.ID || c.Status != fabric.StatusOK || c.Op != fabric.OpWrite {
					r.Fatalf("write with notification: %+v", c)
				}
			}
			sent++
			if sent < total && r.rng.IntN(3) > 0 && sent-got < slots {
				continue
			}
		}
		c := cb.take(1)[0]
		n, off := got*37%room, got%slots*room
		if c.Op != fabric.OpNotify || c.Status != fabric.StatusOK || c.EP != cb.id || c.Imm != ^uint32(got) || c.Bytes != uint32(n) || c.ID != 0 {
			r.Fatalf("notification %d of %d bytes: %+v", got, n, c)
		}
		r.verify(remote.Bytes()[off:off+n], uint64(got), 0, fmt.Sprintf("data of notification %d", got))
		got++
	}
	r.idle()
}

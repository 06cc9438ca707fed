package fabrictest

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

var queueCases = []Case{
	{"QueueFull", queueFull},
	{"UnsignaledOnly", unsignaledOnly},
	{"InvalidRequest", invalidRequest},
	{"ExactlyOnce", exactlyOnce},
	{"BothBusy", bothBusy},
	{"ManyEndpoints", manyEndpoints},
}

// queueFull fills the queue until Post accepts only a prefix, several times.
func queueFull(r *rig) {
	const depth = 16
	ca, _ := r.pair(fabric.EndpointOptions{Depth: depth})
	total := max(r.times(3000), 20*depth)
	local, remote := r.a.region(8*total, fabric.AccessAll), r.b.region(8*total, fabric.AccessAll)
	testutil.Fill(local.Bytes(), 1, 0)
	ws := make([]fabric.WR, total)
	for i := range ws {
		ws[i] = req(fabric.OpWrite, local, 8*i, 8, remote, 8*i)
		ws[i].ID, ws[i].Flags = uint64(i), fabric.FlagSignaled
	}
	seen := make([]bool, total)
	next, got, short := 0, 0, 0
	for got < total {
		before := next
		for next < total {
			n, err := ca.ep.Post(ws[next:])
			r.must(err, "post")
			if n < 0 || n > total-next {
				r.Fatalf("post took %d of %d", n, total-next)
			}
			next += n
			if n == 0 || next < total && n < total-next {
				short++
				break
			}
		}
		if before == 0 && next < depth && next > 0 && r.f.FullQueue == "" {
			r.Fatalf("a fresh queue of depth %d took only %d requests", depth, next)
		}
		r.until("completions", func() bool { return len(r.a.done) > 0 || next < total && got == next })
		for _, d := range r.a.done {
			if d.Op != fabric.OpWrite || d.Status != fabric.StatusOK || d.EP != ca.id || d.ID >= uint64(next) || seen[d.ID] {
				r.Fatalf("after %d of %d posted: %+v (seen before: %v)", next, total, d, d.ID < uint64(total) && seen[d.ID])
			}
			seen[d.ID] = true
			got++
		}
		r.a.done = r.a.done[:0]
	}
	if short == 0 {
		r.Fatalf("%d requests fitted into a queue of depth %d without one poll", total, depth)
	}
	r.verify(remote.Bytes(), 1, 0, "written through a full queue")
	r.idle()
}

// unsignaledOnly: unsignalled requests free their slots although none is reported.
func unsignaledOnly(r *rig) {
	const depth = 16
	ca, _ := r.pair(fabric.EndpointOptions{Depth: depth})
	total := max(r.times(2000), 10*depth)
	local, remote := r.a.region(8*total, fabric.AccessAll), r.b.region(8*total, fabric.AccessAll)
	testutil.Fill(local.Bytes(), 1, 0)
	for i := range total {
		ca.post(req(fabric.OpWrite, local, 8*i, 8, remote, 8*i))
	}
	r.none()
	ca.ok(req(fabric.OpRead, local, 0, 8, remote, 0))
	r.verify(remote.Bytes(), 1, 0, "written without completions")
	r.idle()
}

// invalidRequest: a malformed request is refused with its index; those before it are
// posted.
func invalidRequest(r *rig) {
	ca, _ := r.pair(fabric.EndpointOptions{})
	local, remote := r.a.region(1<<16, fabric.AccessAll), r.b.region(4096, fabric.AccessAll)
	at := remote.Addr()
	key := remote.Key().RKey
	for i, bad := range []fabric.WR{
		{},
		{Op: fabric.OpNotify},
		{Op: fabric.OpDown},
		{Op: 77},
		{Op: fabric.OpWrite, Flags: fabric.FlagInline, Local: []fabric.SGE{sge(local, 0, min(r.a.caps.MaxInline+1, 1<<16))}},
		{Op: fabric.OpRead, Flags: fabric.FlagInline, Local: []fabric.SGE{sge(local, 0, 8)}},
		{Op: fabric.OpRead, Flags: fabric.FlagNotify, Local: []fabric.SGE{sge(local, 0, 8)}},
		{Op: fabric.OpFetchAdd, Flags: fabric.FlagNotify, Local: []fabric.SGE{sge(local, 0, 8)}},
		{Op: fabric.OpFetchAdd},
		{Op: fabric.OpFetchAdd, Local: []fabric.SGE{sge(local, 0, 16)}},
		{Op: fabric.OpCompareSwap, Local: []fabric.SGE{sge(local, 0, 4), sge(local, 4, 4)}},
	} {
		bad.RemoteAddr, bad.RKey = at, key
		testutil.Fill(local.Bytes()[:32], uint64(i+1), 0)
		clear(remote.Bytes())
		good := req(fabric.OpWrite, local, 0, 32, remote, 0)
		good.ID, good.Flags = r.id(), fabric.FlagSignaled
		never := req(fabric.OpWrite, local, 0, 32, remote, 64)
		list := []fabric.WR{good, bad, never}
		taken := 0
		r.until("the malformed request's turn", func() bool {
			n, err := ca.ep.Post(list)
			taken += n
			list = list[n:]
			var we *fabric.WRError
			switch {
			case err == nil && taken < 2:
				return false
			case !errors.As(err, &we) || !errors.Is(err, fabric.ErrInvalidWR) || taken != 1 || we.Index != n:
				r.Fatalf("malformed request %d (%v): post took %d, in all %d, and returned %v; want *WRError", i, bad.Op, n, taken, err)
			}
			return true
		})
		if c := ca.take(1)[0]; c.ID != good.ID || c.Status != fabric.StatusOK {
			r.Fatalf("request before a malformed one: %+v", c)
		}
		r.verify(remote.Bytes()[:32], uint64(i+1), 0, "request before a malformed one")
		if testutil.Load64(remote.Bytes()[64:]) != 0 {
			r.Fatal("the request behind a malformed one was posted")
		}
	}
	r.idle()
	if err := ca.ep.Err(); err != nil {
		r.Fatalf("endpoint's Err is %v", err)
	}
}

// exactlyOnce: random requests in both directions, some signalled, in lists of random
// length; every signalled ID is reported once, and nothing else is.
func exactlyOnce(r *rig) {
	const depth = 32
	var cs []*conn
	for range 2 {
		ca, cb := r.pair(fabric.EndpointOptions{Depth: depth})
		cs = append(cs, ca, cb)
	}
	const room = 4096
	mem := map[*side]fabric.Region{r.a: r.a.region(room, fabric.AccessAll), r.b: r.b.region(room, fabric.AccessAll)}
	type want struct {
		ep uint32
		op fabric.Op
		s  *side
	}
	open := map[uint64]want{}
	account := func(s *side) {
		for _, d := range s.done {
			w, known := open[d.ID]
			if !known || w.ep != d.EP || w.op != d.Op || w.s != s || d.Status != fabric.StatusOK {
				r.Fatalf("side %s: %+v, expected (%v) %+v", s.name, d, known, w)
			}
			delete(open, d.ID)
		}
		s.done = s.done[:0]
	}
	m := r.a.caps.MaxSGE
	for range r.times(1500) {
		c := cs[r.rng.IntN(len(cs))]
		var ws []fabric.WR
		for range 1 + r.rng.IntN(depth/2) {
			op := []fabric.Op{fabric.OpWrite, fabric.OpWrite, fabric.OpRead, fabric.OpFetchAdd, fabric.OpCompareSwap}[r.rng.IntN(5)]
			w := req(op, mem[c.side], 8*r.rng.IntN(64), 8, mem[c.other], 8*r.rng.IntN(64))
			if op == fabric.OpWrite || op == fabric.OpRead {
				k := r.rng.IntN(4)
				if r.rng.IntN(16) == 0 {
					k = m + 1 + r.rng.IntN(m)
				}
				w.Local = nil
				for range k {
					w.Local = append(w.Local, sge(mem[c.side], r.rng.IntN(room-40), r.rng.IntN(40)))
				}
				w.RemoteAddr = mem[c.other].Addr() + uint64(r.rng.IntN(room-int(w.Len())))
			}
			w.ID = r.id()
			switch r.rng.IntN(3) {
			case 0:
				w.Flags |= fabric.FlagSignaled
			case 1:
				w.Flags |= fabric.FlagFence
			}
			if op == fabric.OpWrite && w.Len() <= uint64(r.a.caps.MaxInline) && r.rng.IntN(4) == 0 {
				w.Flags |= fabric.FlagInline
			}
			ws = append(ws, w)
		}
		n, err := c.ep.Post(ws)
		r.must(err, "post")
		for _, w := range ws[:n] {
			if w.Flags&fabric.FlagSignaled != 0 {
				open[w.ID] = want{c.id, w.Op, c.side}
			}
		}
		for range r.rng.IntN(4) {
			r.a.poll()
			r.b.poll()
			account(r.a)
			account(r.b)
		}
	}
	r.until("all completions", func() bool {
		account(r.a)
		account(r.b)
		return len(open) == 0
	})
	for _, c := range cs { // what was posted unsignaled behind the last signaled request uses the memory, too
		c.ok(req(fabric.OpWrite, mem[c.side], 0, 8, mem[c.other], 0))
	}
	r.idle()
}

// bothBusy: both sides write and read as fast as they can, each in its own goroutine; every
// word arrives, every read returns what was written.
func bothBusy(r *rig) {
	const slots, slot = 32, 512
	ca, cb := r.pair(fabric.EndpointOptions{Depth: 64})
	p := newPhase(r.times(600))
	work := func(s *side, c *conn, seed uint64) func() error {
		src, back := s.region(slots*slot, fabric.AccessAll), s.region(slots*slot, fabric.AccessAll)
		dst := s.other.region(slots*slot, fabric.AccessAll)
		return func() error {
			for i := 0; p.more(i); i++ {
				testutil.Fill(src.Bytes(), seed+uint64(i), 0)
				clear(back.Bytes())
				for k := range slots {
					w := req(fabric.OpWrite, src, k*slot, slot, dst, k*slot)
					w.ID = uint64(i*slots + k)
					rd := req(fabric.OpRead, back, k*slot, slot, dst, k*slot)
					rd.ID, rd.Flags = w.ID, fabric.FlagSignaled
					if err := c.postOwn(w); err != nil {
						return err
					}
					if err := c.postOwn(rd); err != nil {
						return err
					}
				}
				if err := s.pollUntil("reads", func() bool { return len(s.done) >= slots }); err != nil {
					return err
				}
				var seen [slots]bool
				for _, d := range s.done {
					k := d.ID - uint64(i*slots)
					if d.Op != fabric.OpRead || d.Status != fabric.StatusOK || k >= slots || seen[k] {
						return fmt.Errorf("round %d: %+v", i, d)
					}
					seen[k] = true
				}
				s.done = s.done[:0]
				if err := testutil.Verify(back.Bytes(), seed+uint64(i), 0); err != nil {
					return fmt.Errorf("round %d: read back: %w", i, err)
				}
			}
			return nil
		}
	}
	fa, fb := work(r.a, ca, 1<<20), work(r.b, cb, 1<<30)
	finish := r.lastOut()
	r.both(finish(r.a, fa), finish(r.b, fb))
	r.idle()
}

// manyEndpoints: traffic on many endpoints does not mix.
func manyEndpoints(r *rig) {
	count := max(r.times(64), 8)
	const slot = 256
	var cs [][2]*conn
	for range count {
		ca, cb := r.pair(fabric.EndpointOptions{Depth: 8})
		cs = append(cs, [2]*conn{ca, cb})
	}
	local, remote := r.a.region(count*slot, fabric.AccessAll), r.b.region(count*slot, fabric.AccessAll)
	for round := range 4 {
		testutil.Fill(local.Bytes(), uint64(round+1), 0)
		alive := map[uint32]bool{}
		for _, k := range r.rng.Perm(count) {
			w := req(fabric.OpWrite, local, k*slot, slot, remote, k*slot)
			w.Flags, w.ID, w.Imm = fabric.FlagSignaled|fabric.FlagNotify, uint64(cs[k][0].id)<<32|uint64(k), uint32(k)
			cs[k][0].post(w)
			alive[cs[k][0].id] = true
		}
		for _, d := range r.a.take(count) {
			k := int(uint32(d.ID))
			if d.Status != fabric.StatusOK || d.Op != fabric.OpWrite || uint64(d.EP) != d.ID>>32 || !alive[d.EP] || cs[k][0].id != d.EP {
				r.Fatalf("%+v", d)
			}
			delete(alive, d.EP)
		}
		for _, d := range r.b.take(count) {
			if d.Op != fabric.OpNotify || int(d.Imm) >= count || cs[d.Imm][1].id != d.EP {
				r.Fatalf("%+v", d)
			}
		}
		r.verify(remote.Bytes(), uint64(round+1), 0, "many endpoints")
		if round == 1 {
			// Half of them close; the others are unaffected.
			for k := count / 2; k < count; k++ {
				r.must(cs[k][0].ep.Close(), "close")
				r.must(cs[k][1].ep.Close(), "close")
			}
			for range 100 {
				r.a.poll()
				r.b.poll()
			}
			for _, s := range []*side{r.a, r.b} {
				for _, d := range s.done {
					if d.Op != fabric.OpDown {
						r.Fatalf("after closing half of the endpoints: %+v", d)
					}
				}
				s.done = s.done[:0]
			}
			count /= 2
			local2, remote2 := r.a.region(count*slot, fabric.AccessAll), r.b.region(count*slot, fabric.AccessAll)
			local, remote = local2, remote2
		}
	}
	r.idle()
}

package fabrictest

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

var orderCases = []Case{
	{"WriteAfterWrite", writeAfterWrite},
	{"LastByteLast", lastByteLast},
	{"WordNeverGoesBack", neverBack},
	{"ReadAfterWrite", readAfterWrite},
	{"AtomicsInOrder", atomicsInOrder},
	{"Fence", fence},
	{"UnsignaledAreDone", unsignaledAreDone},
}

// pingpong lets side a write and side b detect it by polling memory; then b lets a
// continue. prepare returns the requests of turn i, check verifies b's memory once the word
// at flagOff holds i. A third of the turns run in one goroutine that checks after every
// poll of either side: on a link that advances by polling, it sees every intermediate
// state. In the others each side has a goroutine of its own.
func pingpong(r *rig, ca, cb *conn, turns int, local, remote fabric.Region, flagOff int,
	prepare func(i int) []fabric.WR, check func(i int) error) {
	look := func(i int) (bool, error) {
		switch v := testutil.Load64(remote.Bytes()[flagOff:]); v {
		case uint64(i):
			if err := check(i); err != nil {
				return false, fmt.Errorf("turn %d, as soon as the flag was seen: %w", i, err)
			}
			return true, nil
		case uint64(i - 1):
			return false, nil
		default:
			return false, fmt.Errorf("turn %d: the flag is %#x", i, v)
		}
	}
	alone := turns / 3
	for i := 1; i <= alone; i++ {
		list := prepare(i)
		r.until(fmt.Sprintf("flag %d", i), func() bool {
			if len(list) > 0 {
				n, err := ca.ep.Post(list[:1])
				r.must(err, "post")
				list = list[n:]
			}
			for _, s := range []*side{r.a, r.b} {
				seen, err := look(i)
				if err != nil {
					r.Fatal(err)
				}
				if seen {
					return len(list) == 0
				}
				s.poll()
			}
			return false
		})
	}
	back := r.a.region(64, fabric.AccessAll)  // receives b's reply
	reply := r.b.region(64, fabric.AccessAll) // source of b's reply
	finish := r.lastOut()
	p := newPhase(turns - alone)
	r.both(finish(r.a, func() error {
		for i := alone + 1; p.lead(i - alone - 1); i++ {
			for _, w := range prepare(i) {
				if err := ca.postOwn(w); err != nil {
					return err
				}
			}
			if err := r.a.pollUntil(fmt.Sprintf("answer %d", i), func() bool { return testutil.Load64(back.Bytes()) == uint64(i) }); err != nil {
				return err
			}
		}
		return nil
	}), finish(r.b, func() error {
		for i := alone + 1; ; i++ {
			var seen bool
			var err error
			if e := r.b.pollUntil(fmt.Sprintf("flag %d", i), func() bool {
				seen, err = look(i)
				return seen || err != nil || p.over(i-alone-1)
			}); e != nil {
				return e
			}
			if err != nil || !seen {
				return err
			}
			testutil.Store64(reply.Bytes(), uint64(i))
			w := req(fabric.OpWrite, reply, 0, 8, back, 0)
			w.Flags = fabric.FlagInline
			if err := cb.postOwn(w); err != nil {
				return err
			}
		}
	}))
	r.idle()
}

// writeAfterWrite: data in several writes, then a flag in one of its own.
func writeAfterWrite(r *rig) {
	ca, cb := r.pair(fabric.EndpointOptions{})
	const room = 1 << 16
	const flag = room - 8
	local, remote := r.a.region(room, fabric.AccessAll), r.b.region(room, fabric.AccessAll)
	size := func(i int) int { return i * 7919 % (room - 8) }
	pingpong(r, ca, cb, r.times(1000), local, remote, flag,
		func(i int) []fabric.WR {
			n := size(i)
			testutil.Fill(local.Bytes()[:n], uint64(i), 0)
			testutil.Store64(local.Bytes()[flag:], uint64(i))
			var ws []fabric.WR
			for at, k := 0, 0; at < n; k++ {
				m := min(n-at, 1+n/(1+i%4))
				ws = append(ws, req(fabric.OpWrite, local, at, m, remote, at))
				at += m
			}
			return append(ws, req(fabric.OpWrite, local, flag, 8, remote, flag))
		},
		func(i int) error { return testutil.Verify(remote.Bytes()[:size(i)], uint64(i), 0) })
}

// lastByteLast: flag and data in one write, gathered from several pieces.
func lastByteLast(r *rig) {
	if !r.a.caps.LastByteLast || !r.b.caps.LastByteLast {
		r.Skip("Caps.LastByteLast is not promised by this link")
	}
	ca, cb := r.pair(fabric.EndpointOptions{})
	const room = 1 << 16
	const flag = room - 8
	local, remote := r.a.region(room, fabric.AccessAll), r.b.region(room, fabric.AccessAll)
	size := func(i int) int { // of the data before the flag
		n := []int{0, 1, 8, 56, 100, 1000, 4088, 9000, 40000}[i%9]
		return min(n+i%13, room-8)
	}
	pingpong(r, ca, cb, r.times(1500), local, remote, flag,
		func(i int) []fabric.WR {
			n := size(i)
			testutil.Fill(local.Bytes()[flag-n:flag], uint64(i), 0)
			testutil.Store64(local.Bytes()[flag:], uint64(i))
			w := req(fabric.OpWrite, local, flag-n, n+8, remote, flag-n)
			if i%2 == 0 {
				h := n / 2
				w.Local = []fabric.SGE{sge(local, flag-n, h), sge(local, flag-n+h, n-h), sge(local, flag, 8)}
			}
			return []fabric.WR{w}
		},
		func(i int) error { return testutil.Verify(remote.Bytes()[flag-size(i):flag], uint64(i), 0) })
}

// neverBack: a word that counts up is never seen to decrease and ends with the right value;
// first in one goroutine that checks after every step, then in two.
func neverBack(r *rig) {
	ca, _ := r.pair(fabric.EndpointOptions{})
	local, remote := r.a.region(64*8, fabric.AccessAll), r.b.region(64, fabric.AccessAll)
	rounds := uint64(r.times(5000))
	alone := rounds / 3
	next := func(i uint64) fabric.WR {
		testutil.Store64(local.Bytes()[i%64*8:], i)
		w := req(fabric.OpWrite, local, int(i%64*8), 8, remote, 0)
		w.Flags = fabric.FlagInline
		return w
	}
	last := uint64(0)
	look := func() error {
		v := testutil.Load64(remote.Bytes())
		if v < last || v > rounds {
			return fmt.Errorf("word went from %d to %d", last, v)
		}
		last = v
		return nil
	}
	for i := uint64(1); last < alone; {
		if i <= alone {
			n, err := ca.ep.Post([]fabric.WR{next(i)})
			r.must(err, "post")
			i += uint64(n)
		}
		r.must(look(), "after post")
		if r.rng.IntN(3) == 0 || i > alone {
			r.until("a step", func() bool { r.must(look(), "after poll"); return true })
			r.a.poll()
			r.must(look(), "after poll")
			r.b.poll()
		}
	}
	finish := r.lastOut()
	r.both(finish(r.a, func() error {
		for i := alone + 1; i <= rounds; i++ {
			if err := ca.postOwn(next(i)); err != nil {
				return err
			}
		}
		return nil
	}), finish(r.b, func() error {
		var back error
		err := r.b.pollUntil("the last value", func() bool { back = look(); return last == rounds || back != nil })
		if back != nil {
			return back
		}
		return err
	}))
}

// readAfterWrite: a read returns the data of writes before it in the same list, and not
// that of a fenced write behind it.
func readAfterWrite(r *rig) {
	ca, _ := r.pair(fabric.EndpointOptions{})
	const room = 1 << 15
	local, remote := r.a.region(2*room, fabric.AccessAll), r.b.region(room, fabric.AccessAll)
	for i := range r.times(300) {
		n := 1 + i*7919%(room-64)
		testutil.Fill(local.Bytes()[:n], uint64(i+1), 0)
		g := testutil.Guard(local.Bytes()[room:], 13, n)
		clear(g.Buf)
		rd := req(fabric.OpRead, local, room+13, n, remote, 5)
		rd.Flags, rd.ID = fabric.FlagSignaled, r.id()
		ca.post(req(fabric.OpWrite, local, 0, n, remote, 5), rd)
		if c := ca.take(1)[0]; c.ID != rd.ID || c.Status != fabric.StatusOK {
			r.Fatalf("read after write: %+v", c)
		}
		r.verify(g.Buf, uint64(i+1), 0, "read behind a write of the same bytes")
		r.intact(g, "read after write")
	}
	r.idle()
}

// atomicsInOrder: writes, atomics and reads of one word in one list.
func atomicsInOrder(r *rig) {
	ca, _ := r.pair(fabric.EndpointOptions{})
	local, remote := r.a.region(256, fabric.AccessAll), r.b.region(64, fabric.AccessAll)
	word := func(i int) uint64 { return testutil.Load64(local.Bytes()[8*i:]) }
	for i := range uint64(r.times(300)) {
		testutil.Store64(local.Bytes(), 100*i)
		testutil.Store64(local.Bytes()[8:], 7)
		put := req(fabric.OpWrite, local, 0, 8, remote, 8)
		add := req(fabric.OpFetchAdd, local, 16, 8, remote, 8)
		add.Operand = 5
		cas := req(fabric.OpCompareSwap, local, 24, 8, remote, 8)
		cas.Compare, cas.Operand = 100*i+5, 100*i+50
		miss := req(fabric.OpCompareSwap, local, 32, 8, remote, 8)
		miss.Compare, miss.Operand = 100*i+5, 1
		get := req(fabric.OpRead, local, 40, 8, remote, 8)
		put2 := req(fabric.OpWrite, local, 8, 8, remote, 8)
		put2.Flags = fabric.FlagFence
		add2 := req(fabric.OpFetchAdd, local, 48, 8, remote, 8)
		add2.Operand, add2.Flags, add2.ID = 1, fabric.FlagSignaled, r.id()
		ca.post(put, add, cas, miss, get, put2, add2)
		if c := ca.take(1)[0]; c.ID != add2.ID || c.Status != fabric.StatusOK {
			r.Fatalf("last atomic: %+v", c)
		}
		for k, want := range []uint64{100 * i, 100*i + 5, 100*i + 50, 100*i + 50, 7} {
			if got := word(2 + k); got != want {
				r.Fatalf("round %d: result %d is %d, want %d", i, k, got, want)
			}
		}
		if got := testutil.Load64(remote.Bytes()[8:]); got != 8 {
			r.Fatalf("round %d: word is %d at the end, want 8", i, got)
		}
	}
	r.idle()
}

// fence: a fenced write does not change the results of reads and atomics before it.
func fence(r *rig) {
	ca, _ := r.pair(fabric.EndpointOptions{})
	const room = 1 << 15
	local, remote := r.a.region(3*room, fabric.AccessAll), r.b.region(room, fabric.AccessAll)
	for i := range r.times(300) {
		n := 1 + i*6151%(room-1)
		testutil.Fill(remote.Bytes(), uint64(2*i+2), 0)
		testutil.Fill(local.Bytes()[:n], uint64(2*i+1), 0)
		clear(local.Bytes()[room:])
		wr := req(fabric.OpWrite, local, 0, n, remote, 0)
		wr.Flags, wr.ID = fabric.FlagFence|fabric.FlagSignaled, r.id()
		ca.post(req(fabric.OpRead, local, room, n/2, remote, 0), req(fabric.OpRead, local, 2*room, n, remote, 0), wr)
		if c := ca.take(1)[0]; c.ID != wr.ID || c.Status != fabric.StatusOK {
			r.Fatalf("fenced write: %+v", c)
		}
		r.verify(local.Bytes()[room:][:n/2], uint64(2*i+2), 0, "first read before a fenced write")
		r.verify(local.Bytes()[2*room:][:n], uint64(2*i+2), 0, "second read before a fenced write")
		r.verify(remote.Bytes()[:n], uint64(2*i+1), 0, "fenced write")
	}
	r.idle()
}

// unsignaledAreDone: the completion of a request implies that of all before it.
func unsignaledAreDone(r *rig) {
	ca, _ := r.pair(fabric.EndpointOptions{})
	const slot, slots = 700, 20
	local, remote := r.a.region(slot*slots, fabric.AccessAll), r.b.region(slot*slots, fabric.AccessAll)
	for i := range r.times(200) {
		testutil.Fill(local.Bytes(), uint64(i+1), 0)
		var ws []fabric.WR
		for _, k := range r.rng.Perm(slots) {
			ws = append(ws, req(fabric.OpWrite, local, k*slot, slot, remote, k*slot))
		}
		last := &ws[slots-1]
		last.Flags, last.ID = fabric.FlagSignaled, r.id()
		ca.post(ws...)
		if c := ca.take(1)[0]; c.ID != last.ID || c.Status != fabric.StatusOK {
			r.Fatalf("last write: %+v", c)
		}
		r.verify(remote.Bytes(), uint64(i+1), 0, "writes before a completed one")
	}
	r.idle()
}

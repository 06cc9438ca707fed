package fabrictest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

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

// contention: both sides change the same word, side b through an endpoint between two of
// its own, and so does the processor of b where the link allows it. No update may be lost,
// and no old value returned twice.
func contention(r *rig) {
	ca, _ := r.pair(fabric.EndpointOptions{})
	c1, c2 := r.b.endpoint(fabric.EndpointOptions{}), r.b.endpoint(fabric.EndpointOptions{})
	r.join(c1, c2)
	word := r.b.region(64, fabric.AccessAll)
	la, lb := r.a.region(64, fabric.AccessAll), r.b.region(64, fabric.AccessAll)
	add := func(local fabric.Region, id int) fabric.WR {
		w := req(fabric.OpFetchAdd, local, 0, 8, word, 8)
		w.Operand, w.Flags, w.ID = 1, fabric.FlagSignaled, uint64(id)
		return w
	}
	seen := map[uint64]bool{}
	once := func(old uint64) error {
		if seen[old] {
			return fmt.Errorf("%d was returned twice", old)
		}
		seen[old] = true
		return nil
	}
	cpuAdd := func() error {
		if !r.b.caps.AtomicCPU {
			return nil
		}
		return once(testutil.Add64(word.Bytes()[8:], 1) - 1)
	}
	// In one goroutine, with both requests in flight at once.
	alone := r.times(500)
	for i := range alone {
		ca.post(add(la, i))
		c1.post(add(lb, i))
		r.must(cpuAdd(), "addition by the processor")
		if da, db := ca.take(1)[0], c1.take(1)[0]; da.Status != fabric.StatusOK || db.Status != fabric.StatusOK {
			r.Fatalf("fetch-add: %+v, %+v", da, db)
		}
		r.must(once(testutil.Load64(la.Bytes())), "fetch-add of a")
		r.must(once(testutil.Load64(lb.Bytes())), "fetch-add of b")
	}
	// In one goroutine for each side.
	adds := newPhase(r.times(5000))
	var start sync.WaitGroup
	var added atomic.Uint64
	start.Add(2)
	run := func(c *conn, local fabric.Region, each func() error) func() error {
		s := c.side
		return func() error {
			start.Done()
			start.Wait()
			for i := 0; adds.more(i); i++ {
				added.Add(1)
				if err := c.postOwn(add(local, i)); err != nil {
					return err
				}
				if err := each(); err != nil {
					return err
				}
				if err := s.pollUntil("fetch-add", func() bool { return len(s.done) > 0 }); err != nil {
					return err
				}
				if d := s.done[0]; len(s.done) > 1 || d.Status != fabric.StatusOK || d.Op != fabric.OpFetchAdd || d.ID != uint64(i) {
					return fmt.Errorf("fetch-add: %+v", s.done)
				}
				s.done = s.done[:0]
			}
			return nil
		}
	}
	cpuTimes := 0
	finish := r.lastOut()
	r.both(
		finish(r.a, run(ca, la, func() error { return nil })),
		finish(r.b, run(c1, lb, func() error {
			if r.b.caps.AtomicCPU {
				testutil.Add64(word.Bytes()[8:], 1)
				cpuTimes++
			}
			return nil
		})))
	if got, want := testutil.Load64(word.Bytes()[8:]), uint64(len(seen)+cpuTimes)+added.Load(); got != want {
		r.Fatalf("word is %d after %d additions", got, want)
	}

	// A lock taken by compare-swap protects a counter changed by read and write, so that two
	// holders would lose an update.
	locks := newPhase(r.times(300))
	var turns atomic.Uint64
	lock := r.b.region(64, fabric.AccessAll)
	locked := func(s *side, c *conn) func() error {
		local := s.region(64, fabric.AccessAll)
		one := func(w fabric.WR) error {
			w.Flags |= fabric.FlagSignaled
			if err := c.postOwn(w); err != nil {
				return err
			}
			if err := s.pollUntil("a locked step", func() bool { return len(s.done) > 0 }); err != nil {
				return err
			}
			d := s.done[0]
			s.done = s.done[:0]
			return d.Err()
		}
		return func() error {
			for i := 0; locks.more(i); i++ {
				turns.Add(1)
				for {
					w := req(fabric.OpCompareSwap, local, 0, 8, lock, 0)
					w.Compare, w.Operand = 0, uint64(s.name[0])
					if err := one(w); err != nil {
						return err
					}
					if testutil.Load64(local.Bytes()) == 0 {
						break
					}
				}
				if err := one(req(fabric.OpRead, local, 8, 8, lock, 8)); err != nil {
					return err
				}
				testutil.Store64(local.Bytes()[8:], testutil.Load64(local.Bytes()[8:])+1)
				if err := one(req(fabric.OpWrite, local, 8, 8, lock, 8)); err != nil {
					return err
				}
				w := req(fabric.OpCompareSwap, local, 0, 8, lock, 0)
				w.Compare, w.Operand = uint64(s.name[0]), 0
				if err := one(w); err != nil {
					return err
				}
				if testutil.Load64(local.Bytes()) != uint64(s.name[0]) {
					return errors.New("another rank held the lock at the same time")
				}
			}
			return nil
		}
	}
	finish = r.lastOut()
	r.both(finish(r.a, locked(r.a, ca)), finish(r.b, locked(r.b, c1)))
	if got := testutil.Load64(lock.Bytes()[8:]); got != turns.Load() {
		r.Fatalf("counter behind the lock is %d, want %d", got, turns.Load())
	}
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

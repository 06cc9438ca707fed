package fabrictest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// contention: both sides change the same word, side b through an endpoint between two of
// its own, and so does the processor of b where the link allows it. No update may be lost,
// and no old value returned twice.
func contention(r *rig) {
	x := newContended(r)
	x.inOneGoroutine()
	x.inTwoGoroutines()
	x.behindALock()
}

// contended is a word of side b that both sides add to.
type contended struct {
	*rig
	ca, cb *conn // to the word, of side a and of side b itself
	word   fabric.Region
	la, lb fabric.Region // results
	seen   map[uint64]bool
}

func newContended(r *rig) *contended {
	x := &contended{rig: r, seen: map[uint64]bool{}}
	x.ca, _ = r.pair(fabric.EndpointOptions{})
	other := r.b.endpoint(fabric.EndpointOptions{})
	x.cb = r.b.endpoint(fabric.EndpointOptions{})
	r.join(x.cb, other)
	x.word = r.b.region(64, fabric.AccessAll)
	x.la, x.lb = r.a.region(64, fabric.AccessAll), r.b.region(64, fabric.AccessAll)
	return x
}

func (x *contended) add(local fabric.Region, id int) fabric.WR {
	w := req(fabric.OpFetchAdd, local, 0, 8, x.word, 8)
	w.Operand, w.Flags, w.ID = 1, fabric.FlagSignaled, uint64(id)
	return w
}

// once notes an old value.
func (x *contended) once(old uint64) error {
	if x.seen[old] {
		return fmt.Errorf("%d was returned twice", old)
	}
	x.seen[old] = true
	return nil
}

func (x *contended) cpuAdd() error {
	if !x.b.caps.AtomicCPU {
		return nil
	}
	return x.once(testutil.Add64(x.word.Bytes()[8:], 1) - 1)
}

// inOneGoroutine adds with both requests in flight at once.
func (x *contended) inOneGoroutine() {
	for i := range x.times(500) {
		x.ca.post(x.add(x.la, i))
		x.cb.post(x.add(x.lb, i))
		x.must(x.cpuAdd(), "addition by the processor")
		if da, db := x.ca.take(1)[0], x.cb.take(1)[0]; da.Status != fabric.StatusOK || db.Status != fabric.StatusOK {
			x.Fatalf("fetch-add: %+v, %+v", da, db)
		}
		x.must(x.once(testutil.Load64(x.la.Bytes())), "fetch-add of a")
		x.must(x.once(testutil.Load64(x.lb.Bytes())), "fetch-add of b")
	}
}

// inTwoGoroutines adds in one goroutine for each side.
func (x *contended) inTwoGoroutines() {
	adds := newPhase(x.times(5000))
	var start sync.WaitGroup
	var added atomic.Uint64
	start.Add(2)
	run := func(c *conn, local fabric.Region, each func()) func() error {
		s := c.side
		return func() error {
			start.Done()
			start.Wait()
			for i := 0; adds.more(i); i++ {
				added.Add(1)
				if err := c.postOwn(x.add(local, i)); err != nil {
					return err
				}
				each()
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
	finish := x.lastOut()
	x.both(
		finish(x.a, run(x.ca, x.la, func() {})),
		finish(x.b, run(x.cb, x.lb, func() {
			if x.b.caps.AtomicCPU {
				testutil.Add64(x.word.Bytes()[8:], 1)
				cpuTimes++
			}
		})))
	if got, want := testutil.Load64(x.word.Bytes()[8:]), uint64(len(x.seen)+cpuTimes)+added.Load(); got != want {
		x.Fatalf("word is %d after %d additions", got, want)
	}
}

// behindALock takes a lock by compare-swap, which protects a counter changed by read and write, so that two
// holders would lose an update.
func (x *contended) behindALock() {
	turns := newPhase(x.times(300))
	var taken atomic.Uint64
	lock := x.b.region(64, fabric.AccessAll)
	run := func(c *conn) func() error {
		local := c.side.region(64, fabric.AccessAll)
		return func() error {
			for i := 0; turns.more(i); i++ {
				taken.Add(1)
				if err := c.lockedAdd(local, lock); err != nil {
					return err
				}
			}
			return nil
		}
	}
	finish := x.lastOut()
	x.both(finish(x.a, run(x.ca)), finish(x.b, run(x.cb)))
	if got := testutil.Load64(lock.Bytes()[8:]); got != taken.Load() {
		x.Fatalf("counter behind the lock is %d, want %d", got, taken.Load())
	}
}

// lockedAdd takes the lock in the first word of lock, adds 1 to the second by a read and a write, and gives the
// lock back.
func (c *conn) lockedAdd(local, lock fabric.Region) error {
	me := uint64(c.side.name[0])
	swap := func(from, to uint64) error {
		w := req(fabric.OpCompareSwap, local, 0, 8, lock, 0)
		w.Compare, w.Operand = from, to
		return c.one(w)
	}
	for taken := false; !taken; taken = testutil.Load64(local.Bytes()) == 0 {
		if err := swap(0, me); err != nil {
			return err
		}
	}
	if err := c.one(req(fabric.OpRead, local, 8, 8, lock, 8)); err != nil {
		return err
	}
	testutil.Store64(local.Bytes()[8:], testutil.Load64(local.Bytes()[8:])+1)
	if err := c.one(req(fabric.OpWrite, local, 8, 8, lock, 8)); err != nil {
		return err
	}
	if err := swap(me, 0); err != nil {
		return err
	}
	if testutil.Load64(local.Bytes()) != me {
		return errors.New("another rank held the lock at the same time")
	}
	return nil
}

// one posts a request and waits until it is complete.
func (c *conn) one(w fabric.WR) error {
	s := c.side
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

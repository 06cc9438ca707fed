package fabrictest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
)

// rig holds two links and the test that uses them. Unless a method says otherwise, it is
// for the test's goroutine, which then owns both links.
type rig struct {
	testing.TB
	f      *Factory
	a, b   *side
	rng    *rand.Rand
	nextID uint64
}

// side is one of the two links and the completions it reported.
type side struct {
	r      *rig
	name   string
	link   fabric.Link
	caps   fabric.Caps
	other  *side
	cs     [16]fabric.Completion
	done   []fabric.Completion
	opened []fabric.Endpoint
	down   uint32 // the endpoint whose OpDown may still come, 0 if none

	sleeps atomic.Int64 // number of times that sleepUntil was about to sleep
}

// conn is one endpoint.
type conn struct {
	*side
	ep fabric.Endpoint
	id uint32
}

func newRig(tb testing.TB, f *Factory) *rig {
	tb.Helper()
	r := &rig{TB: tb, f: f, rng: rand.New(rand.NewPCG(1, uint64(len(tb.Name())))), nextID: 1}
	la, lb := f.Open(tb)
	r.a = &side{r: r, name: "a", link: la, caps: la.Caps()}
	r.b = &side{r: r, name: "b", link: lb, caps: lb.Caps()}
	r.a.other, r.b.other = r.b, r.a
	tb.Cleanup(func() {
		for _, s := range []*side{r.a, r.b} {
			if err := s.link.Close(); err != nil {
				tb.Errorf("close link %s: %v", s.name, err)
			}
		}
	})
	return r
}

// times scales a number of repetitions by Factory.Slow. With as few as under the race detector,
// every mutant is caught.
func (r *rig) times(n int) int {
	if testing.Short() {
		n /= 4
	}
	return max(testutil.Fewer(n, r.f.Slow), 3)
}

func (r *rig) must(err error, what string) {
	if err != nil {
		r.Helper()
		r.Fatalf("%s: %v", what, err)
	}
}

// id returns a request ID not used before.
func (r *rig) id() uint64 { r.nextID++; return r.nextID }

// region returns registered memory of s, closed when the test ends.
func (s *side) region(size int, access fabric.Access) fabric.Region {
	s.r.Helper()
	reg, err := s.link.Alloc(size, access)
	s.r.must(err, "alloc")
	s.r.Cleanup(func() {
		s.r.settle()
		if err := reg.Close(); err != nil {
			s.r.Errorf("close region: %v", err)
		}
	})
	if len(reg.Bytes()) != size || reg.Addr() != fabric.Addr(reg.Bytes()) {
		s.r.Fatalf("alloc(%d): region of %d bytes at %#x, its memory at %#x", size, len(reg.Bytes()), reg.Addr(), fabric.Addr(reg.Bytes()))
	}
	return reg
}

// registered returns off-heap memory that s registered rather than allocated.
func (s *side) registered(size int, access fabric.Access) fabric.Region {
	s.r.Helper()
	mem := testutil.Scratch(s.r, size)
	reg, err := s.link.Register(mem, access)
	s.r.must(err, "register")
	s.r.Cleanup(func() {
		s.r.settle()
		if err := reg.Close(); err != nil {
			s.r.Errorf("close region: %v", err)
		}
	})
	return reg
}

// settle closes the endpoints of a test that has failed, before their memory: requests may be in
// flight there, and a fault would hide why it has failed.
func (r *rig) settle() {
	if !r.Failed() {
		return
	}
	for _, ep := range slices.Concat(r.a.opened, r.b.opened) {
		_ = ep.Close() // again, and reported, by the cleanup of the endpoint
	}
}

func (s *side) endpoint(o fabric.EndpointOptions) *conn {
	s.r.Helper()
	o.ID = uint32(len(s.opened)) + 101
	if o.PeerTimeout == 0 && s.link.Caps().TargetProgress && !s.r.f.AnswersAlone {
		// Peers here live, but on a busy machine a polling one may not be scheduled for longer
		// than fabric.DefaultPeerTimeout.
		o.PeerTimeout = s.r.f.Deadline
	}
	ep, err := s.link.NewEndpoint(o)
	s.r.must(err, "new endpoint")
	s.opened = append(s.opened, ep)
	s.r.Cleanup(func() {
		if err := ep.Close(); err != nil {
			s.r.Errorf("close endpoint: %v", err)
		}
	})
	return &conn{side: s, ep: ep, id: o.ID}
}

// pair returns two endpoints connected with each other.
func (r *rig) pair(o fabric.EndpointOptions) (*conn, *conn) {
	r.Helper()
	ca, cb := r.a.endpoint(o), r.b.endpoint(o)
	r.join(ca, cb)
	return ca, cb
}

func (r *rig) join(ca, cb *conn) {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), r.f.Deadline)
	defer cancel()
	addrA, addrB := ca.ep.Address(), cb.ep.Address()
	if n := max(len(addrA), len(addrB)); n > fabric.MaxAddress || n == 0 {
		r.Fatalf("address of %d bytes", n)
	}
	errs := make(chan error, 2)
	go func() { errs <- ca.ep.Connect(ctx, addrB) }()
	go func() { errs <- cb.ep.Connect(ctx, addrA) }()
	left := 2
	r.until("connect", func() bool {
		select {
		case err := <-errs:
			r.must(err, "connect")
			left--
		default:
		}
		return left == 0
	})
	ca.settle()
	cb.settle()
}

// settle replaces an endpoint of a fabric.Fork by that which it has become.
func (c *conn) settle() {
	ep, unused := fabric.Settle(c.ep)
	if c.ep = ep; unused != nil {
		c.r.must(unused.Close(), "close the unused endpoint")
	}
}

// poll polls s once and stores the completions. Only the owner of s calls it.
func (s *side) poll() int {
	n := s.link.Poll(s.cs[:])
	for _, c := range s.cs[:n] {
		switch {
		case c.Op == fabric.OpPath: // no promise depends on it
		case c.Op == fabric.OpDown && c.EP == s.down:
			s.down = 0
		default:
			s.done = append(s.done, c)
		}
	}
	return n
}

// pollUntil polls s until cond or the deadline. Only the owner of s calls it.
func (s *side) pollUntil(what string, cond func() bool) error {
	var sp cpu.Spinner
	end := time.Now().Add(s.r.f.Deadline)
	for n := 0; !cond(); n++ {
		if n&63 == 63 && time.Now().After(end) {
			return fmt.Errorf("side %s: %s: not within %v", s.name, what, s.r.f.Deadline)
		}
		if s.poll() > 0 {
			sp.Reset()
			continue
		}
		sp.Wait()
	}
	return nil
}

// until polls both sides until cond or the deadline.
func (r *rig) until(what string, cond func() bool) {
	r.Helper()
	var sp cpu.Spinner
	end := time.Now().Add(r.f.Deadline)
	for n := 0; !cond(); n++ {
		if n&63 == 63 && time.Now().After(end) {
			r.Fatalf("%s: not within %v; reported so far: a %v, b %v", what, r.f.Deadline, r.a.done, r.b.done)
		}
		if r.a.poll()+r.b.poll() > 0 {
			sp.Reset()
			continue
		}
		sp.Wait()
	}
}

// both runs f for each side in a goroutine of its own, which owns that side.
func (r *rig) both(fa, fb func() error) {
	r.Helper()
	ea, eb := make(chan error, 1), make(chan error, 1)
	go func() { ea <- fa() }()
	go func() { eb <- fb() }()
	errA, errB := <-ea, <-eb // each ends by its deadlines
	if errA != nil || errB != nil {
		r.Fatalf("side a: %v; side b: %v", errA, errB)
	}
}

// idle polls both sides for a while and fails if anything is reported. It polls few times,
// because on a busy machine a yield lasts as long as the time slices of all other busy
// threads.
func (r *rig) idle() {
	r.Helper()
	for i := range 200 {
		r.a.poll()
		r.b.poll()
		if i%20 == 0 {
			cpu.Yield()
		}
	}
	r.none()
}

// none fails if completions are left over.
func (r *rig) none() {
	r.Helper()
	if len(r.a.done)+len(r.b.done) > 0 {
		r.Fatalf("unexpected completions: a %v, b %v", r.a.done, r.b.done)
	}
}

// take waits for n completions of s and returns them.
func (s *side) take(n int) []fabric.Completion {
	s.r.Helper()
	s.r.until(fmt.Sprintf("%d completions at %s", n, s.name), func() bool { return len(s.done) >= n })
	out := slices.Clone(s.done[:n])
	s.done = slices.Delete(s.done, 0, n)
	return out
}

// post posts all of wrs and polls when the queue is full.
func (c *conn) post(wrs ...fabric.WR) {
	c.r.Helper()
	c.r.until("post", func() bool {
		n, err := c.ep.Post(wrs)
		c.r.must(err, "post")
		if n < 0 || n > len(wrs) {
			c.r.Fatalf("post took %d of %d requests", n, len(wrs))
		}
		wrs = wrs[n:]
		return len(wrs) == 0
	})
}

// do executes one request and returns its completion, whatever its status.
func (c *conn) do(w fabric.WR) fabric.Completion {
	c.r.Helper()
	w.ID = c.r.id()
	w.Flags |= fabric.FlagSignaled
	c.post(w)
	got := c.take(1)[0]
	if got.ID != w.ID || got.EP != c.id || got.Op != w.Op {
		c.r.Fatalf("completion %+v for request %d (%v) on endpoint %d", got, w.ID, w.Op, c.id)
	}
	return got
}

// ok executes one request that must succeed.
func (c *conn) ok(w fabric.WR) {
	c.r.Helper()
	if got := c.do(w); got.Status != fabric.StatusOK {
		c.r.Fatalf("%v of %d bytes in %d pieces: %v", w.Op, w.Len(), len(w.Local), got.Status)
	}
}

// sge returns the piece [off, off+n) of reg.
func sge(reg fabric.Region, off, n int) fabric.SGE {
	return fabric.SGE{Addr: reg.Addr() + uint64(off), Len: uint32(n), LKey: reg.LKey()}
}

// req returns a request whose local piece is [loff, loff+n) of local and whose target is
// remote at roff.
func req(op fabric.Op, local fabric.Region, loff, n int, remote fabric.Region, roff int) fabric.WR {
	return fabric.WR{
		Op: op, Local: []fabric.SGE{sge(local, loff, n)},
		RemoteAddr: remote.Key().Addr + uint64(roff), RKey: remote.Key().RKey,
	}
}

// verify fails unless b holds payload (seed, off).
func (r *rig) verify(b []byte, seed, off uint64, what string) {
	if err := testutil.Verify(b, seed, off); err != nil {
		r.Helper()
		r.Fatalf("%s: %v", what, err)
	}
}

// intact fails if a canary of g has changed.
func (r *rig) intact(g *testutil.Guarded, what string) {
	if err := g.Check(); err != nil {
		r.Helper()
		r.Fatalf("%s: %v", what, err)
	}
}

// postOwn posts w; only the owner of c's side calls it.
func (c *conn) postOwn(w fabric.WR) error {
	list := [1]fabric.WR{w}
	var err error
	var n int
	if e := c.pollUntil("post", func() bool { n, err = c.ep.Post(list[:]); return n == 1 || err != nil }); e != nil {
		return e
	}
	return err
}

// lastOut wraps the two functions given to both: a side whose function has returned keeps
// polling until the other's has, as a progress engine would. This has no deadline of its
// own: the other function's waits have theirs, and thousands of round trips on a busy host
// take longer than one of them.
func (r *rig) lastOut() func(s *side, f func() error) func() error {
	var left atomic.Int32
	left.Store(2)
	return func(s *side, f func() error) func() error {
		return func() error {
			err := f()
			left.Add(-1)
			for left.Load() != 0 {
				if s.poll() == 0 {
					cpu.Yield()
				}
			}
			return err
		}
	}
}

// phase is a part of a test in which each turn needs both sides' goroutines. If other
// processes occupy all processors, a turn takes time slices instead of microseconds, and
// thousands would take minutes: a phase that has lasted phaseTime and has made phaseTurns
// ends early. A machine that makes a turn in 60 µs, several wake-ups, makes all of them.
type phase struct {
	turns int // at most
	end   time.Time
	made  atomic.Int64 // set by the leader when it has ended; before that -1
}

const (
	phaseTime  = 250 * time.Millisecond
	phaseTurns = 30
)

// newPhase begins a phase of at most the given number of turns.
func newPhase(turns int) *phase {
	p := &phase{turns: turns, end: time.Now().Add(phaseTime)}
	p.made.Store(-1)
	return p
}

// more reports whether turn i, counted from 0, takes place.
func (p *phase) more(i int) bool {
	return i < p.turns && (i < phaseTurns || time.Now().Before(p.end))
}

// lead is the variant of more for the side that decides for both.
func (p *phase) lead(i int) bool {
	if p.more(i) {
		return true
	}
	p.made.Store(int64(i))
	return false
}

// over reports that turn i will not take place: the leader ended before it.
func (p *phase) over(i int) bool { m := p.made.Load(); return m >= 0 && int64(i) >= m }

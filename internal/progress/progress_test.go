//go:build unix

package progress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/event"
	"github.com/seed33544411/rma/internal/owned"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// op is one write of 8 bytes; next makes the stack of those posted.
type op struct {
	Waiter
	next   *op
	status fabric.Status
	off    uint64
}

// side is one end of a connection and the protocol that tests drive it with.
type side struct {
	link     fabric.Link
	ep       fabric.Endpoint
	mem      fabric.Region
	peer     fabric.RemoteKey
	eng      *Engine
	in       atomic.Pointer[op]
	queue    []*op
	inFlight map[uint64]*op
	nextID   uint64
	wrs      [1]fabric.WR
	sges     [1]fabric.SGE
}

func (s *side) Pending() bool { return s.in.Load() != nil }
func (s *side) Refuse()       { s.Step() }

func (s *side) Watches() bool           { return true }
func (s *side) Rest(bool) time.Duration { return 0 }

func (s *side) push(o *op) {
	o.Init()
	for {
		o.next = s.in.Load()
		if s.in.CompareAndSwap(o.next, o) {
			return
		}
	}
}

func (s *side) Step() bool {
	from := len(s.queue)
	for o := s.in.Swap(nil); o != nil; o = o.next {
		s.queue = append(s.queue, o)
	}
	did := len(s.queue) > from
	for i, j := from, len(s.queue)-1; i < j; i, j = i+1, j-1 {
		s.queue[i], s.queue[j] = s.queue[j], s.queue[i]
	}
	for len(s.queue) > 0 {
		o := s.queue[0]
		s.nextID++
		s.sges[0] = fabric.NewSGE(s.mem.Bytes()[o.off:o.off+8], s.mem.LKey())
		s.wrs[0] = fabric.WR{ID: s.nextID, Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Local: s.sges[:], RemoteAddr: s.peer.Addr + o.off, RKey: s.peer.RKey}
		n, err := s.ep.Post(s.wrs[:])
		if err != nil {
			o.status = fabric.StatusFlushed
			s.queue = s.queue[:copy(s.queue, s.queue[1:])]
			o.Finish()
			continue
		}
		if n == 0 {
			return did
		}
		s.inFlight[s.nextID] = o
		s.queue = s.queue[:copy(s.queue, s.queue[1:])]
		did = true
	}
	return did
}

func (s *side) Complete(_ int, cs []fabric.Completion) {
	for _, c := range cs {
		if o := s.inFlight[c.ID]; o != nil {
			delete(s.inFlight, c.ID)
			o.status = c.Status
			o.Finish()
		}
	}
}

func pair(t testing.TB, o sim.Options) (a, b *side) {
	net := sim.NewNetwork(o)
	sides := []*side{{inFlight: map[uint64]*op{}}, {inFlight: map[uint64]*op{}}}
	for _, s := range sides {
		l, err := net.NewLink()
		require.NoError(t, err)
		s.link = l
		s.mem, err = l.Alloc(1<<16, fabric.AccessAll)
		require.NoError(t, err)
		s.ep, err = l.NewEndpoint(fabric.EndpointOptions{PeerTimeout: testutil.Limit})
		require.NoError(t, err)
	}
	a, b = sides[0], sides[1]
	a.peer, b.peer = b.mem.Key(), a.mem.Key()
	var g errgroup.Group
	g.Go(func() error { return a.ep.Connect(testutil.Context(t, 20*time.Second), b.ep.Address()) })
	g.Go(func() error { return b.ep.Connect(testutil.Context(t, 20*time.Second), a.ep.Address()) })
	require.NoError(t, g.Wait())
	for _, s := range sides {
		var err error
		s.eng, err = New([]fabric.Link{s.link}, s, cpu.Default(), cpu.NoHome, 1)
		require.NoError(t, err)
		s.eng.Start(false)
	}
	t.Cleanup(func() {
		for _, s := range sides {
			require.NoError(t, s.eng.Close())
			require.NoError(t, s.eng.Close())
			require.NoError(t, s.eng.Err())
			require.NoError(t, s.mem.Close())
			require.NoError(t, s.link.Close())
		}
	})
	return a, b
}

// takeOver returns another engine for s, which has not been started, in place of its own.
func takeOver(t *testing.T, s *side) *Engine {
	e, err := New([]fabric.Link{s.link}, s, cpu.Default(), cpu.NoHome, 1)
	require.NoError(t, err)
	require.NoError(t, s.eng.Close())
	s.eng = e
	return e
}

// leave posts writes that nobody waits for: the progress goroutine alone completes them.
func (s *side) leave(t *testing.T) {
	ops := make([]op, 50)
	for i := range ops {
		s.push(&ops[i])
	}
	s.eng.Kick()
	for i := range ops {
		testutil.Eventually(t, testutil.Limit, ops[i].Done, "completed by the progress goroutine")
	}
}

func (s *side) write(ctx context.Context, o *op) error {
	s.push(o)
	s.eng.Kick()
	if err := s.eng.Wait(ctx, &o.Waiter); err != nil {
		return err
	}
	return o.status.Err()
}

var networks = map[string]sim.Options{
	"at once":          {},
	"target's help":    {Caps: sim.CapsLike("tcp")},
	"delayed":          {Caps: sim.CapsLike("ibv"), MaxDelay: 20, MaxCompletionDelay: 20, Seed: 1},
	"queue often full": {Caps: sim.CapsLike("tcp"), QueueFull: 0.7, MaxDelay: 3, Seed: 2},
}

// Many goroutines on both sides, each waiting for each of its writes: nothing
// is lost, nobody waits for ever.
func TestNoWakeupIsLost(t *testing.T) {
	for name, o := range networks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := pair(t, o)
			ctx := testutil.Context(t, 60*time.Second)
			var g errgroup.Group
			for _, s := range []*side{a, b} {
				for w := range 8 {
					g.Go(func() error {
						o := &op{off: uint64(w * 8)}
						for i := range 300 {
							if err := s.write(ctx, o); err != nil {
								return fmt.Errorf("worker %d write %d: %w", w, i, err)
							}
							if i%100 == w {
								time.Sleep(2 * time.Millisecond) // sleep: lets the engine doze and fall asleep
							}
						}
						return nil
					})
				}
			}
			require.NoError(t, g.Wait())
		})
	}
}

// What was posted and not waited for completes as well, also when the
// engine was asleep.
func TestNobodyWaits(t *testing.T) {
	for name, o := range networks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _ := pair(t, o)
			for range 20 {
				testutil.Eventually(t, 20*time.Second, func() bool { return a.eng.rest.Load() == asleep }, "progress goroutine asleep")
				ops := make([]op, 50)
				for i := range ops {
					a.push(&ops[i])
					a.eng.Kick()
				}
				for i := range ops {
					testutil.Eventually(t, 20*time.Second, ops[i].Done, "write %d done", i)
				}
			}
		})
	}
}

// A target whose application does nothing but compute serves its peer.
func TestTargetComputes(t *testing.T) {
	a, b := pair(t, sim.Options{Caps: sim.CapsLike("tcp")})
	ctx := testutil.Context(t, 60*time.Second)
	_ = b
	for i := range 200 {
		require.NoError(t, a.write(ctx, &op{off: uint64(i % 8)}))
		if i%50 == 0 {
			testutil.Eventually(t, 20*time.Second, func() bool { return b.eng.rest.Load() == asleep }, "target asleep")
		}
	}
}

func TestContextEndsAWait(t *testing.T) {
	// A delay in steps that nobody takes: the other side does not poll enough.
	a, b := pair(t, sim.Options{Caps: sim.CapsLike("tcp")})
	b.link.(*sim.Link).Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond) // deadline: it has to end
	defer cancel()
	o := &op{}
	require.ErrorIs(t, a.write(ctx, o), context.DeadlineExceeded)
	require.Zero(t, a.eng.parked.Load())
	done, cancel2 := context.WithCancel(t.Context())
	cancel2()
	require.ErrorIs(t, a.eng.Wait(done, &o.Waiter), context.Canceled)
	// It may be waited for again.
	b.link.(*sim.Link).Thaw()
	require.NoError(t, a.eng.Wait(testutil.Context(t, 20*time.Second), &o.Waiter))
}

func TestCloseEndsWaits(t *testing.T) {
	a, b := pair(t, sim.Options{Caps: sim.CapsLike("tcp")})
	b.link.(*sim.Link).Freeze()
	var g errgroup.Group
	for range 4 {
		g.Go(func() error { return a.write(context.Background(), &op{}) })
	}
	testutil.Eventually(t, 20*time.Second, func() bool { return a.eng.parked.Load() == 4 }, "all are parked")
	require.NoError(t, a.eng.Close())
	require.ErrorIs(t, g.Wait(), ErrClosed)
}

// after is a protocol and a link that count what is called of them.
type after struct {
	fabric.Link
	calls   atomic.Int32
	refused atomic.Int32
	pending atomic.Bool
}

func (a *after) Pending() bool                         { return a.pending.Load() }
func (a *after) Step() bool                            { a.calls.Add(1); a.pending.Store(false); return false }
func (a *after) Refuse()                               { a.refused.Add(1); a.pending.Store(false) }
func (a *after) Poll([]fabric.Completion) int          { a.calls.Add(1); return 0 }
func (a *after) Watches() bool                         { return true }
func (a *after) Rest(bool) time.Duration               { return 0 }
func (a *after) Complete(_ int, _ []fabric.Completion) {}

// When Close has returned, memory and links may be closed: nothing uses them any longer. What is posted all the same
// is refused.
func TestNothingAfterClose(t *testing.T) {
	l, err := sim.NewNetwork(sim.Options{}).NewLink()
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	a := &after{Link: l}
	e, err := New([]fabric.Link{a}, a, cpu.Default(), cpu.NoHome, 1)
	require.NoError(t, err)
	require.False(t, e.Progress())
	require.EqualValues(t, 2, a.calls.Swap(0)) // a step and a poll; no goroutine has been started
	require.NoError(t, e.Close())
	a.calls.Store(0)
	ctx := testutil.Context(t, testutil.Limit)
	var w Waiter
	for range 2 * cheapPolls {
		require.ErrorIs(t, e.Wait(ctx, &w), ErrClosed)
		_, err := e.WaitAny(ctx, 0, Waiters{&w})
		require.ErrorIs(t, err, ErrClosed)
		e.Do(func() {})
		require.False(t, e.Progress())
		for _, post := range []func(){e.Kick, func() { require.False(t, e.Own()) }, func() { require.False(t, e.Hold()) }} {
			a.pending.Store(true)
			post()
			require.False(t, a.pending.Load())
		}
	}
	require.Zero(t, a.calls.Load())
	require.Positive(t, a.refused.Load())
}

// Do excludes polls, and gets its turn while others drive and wait.
func TestDo(t *testing.T) {
	a, b := pair(t, sim.Options{Caps: sim.CapsLike("tcp"), MaxDelay: 5})
	ctx, cancel := context.WithCancel(testutil.Context(t, 60*time.Second))
	var g errgroup.Group
	for range 3 {
		g.Go(func() error {
			o := &op{}
			for ctx.Err() == nil {
				if err := a.write(ctx, o); err != nil {
					if errors.Is(err, context.Canceled) {
						return nil
					}
					return err
				}
			}
			return nil
		})
	}
	inside := 0
	for range 200 {
		a.eng.Do(func() { inside++ })
		b.eng.Do(func() { inside++ })
	}
	cancel()
	_ = g.Wait()
	require.Equal(t, 400, inside)
}

// While nothing happens the engine uses no processor worth mentioning.
func TestIdleCostsNothing(t *testing.T) {
	for _, waiting := range []bool{false, true} {
		a, b := pair(t, sim.Options{Caps: sim.CapsLike("tcp")})
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		if waiting { // a wait that lasts is as cheap
			b.link.(*sim.Link).Freeze()
			wg.Go(func() { _ = a.write(ctx, &op{}) })
			testutil.Eventually(t, 20*time.Second, func() bool { return a.eng.parked.Load() == 1 }, "parked")
		}
		testutil.Eventually(t, 20*time.Second, func() bool {
			return a.eng.rest.Load() == asleep && (waiting || b.eng.rest.Load() == asleep)
		}, "asleep")
		before, start := cpuTime(t), time.Now()
		time.Sleep(400 * time.Millisecond) // sleep: the idle time that is measured
		used, took := cpuTime(t)-before, time.Since(start)
		cancel()
		wg.Wait()
		b.link.(*sim.Link).Thaw()
		require.Less(t, used, took/20, "waiting=%v: %v of processor time in %v", waiting, used, took)
	}
}

func cpuTime(t *testing.T) time.Duration {
	var ru unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &ru))
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// With one processor for all goroutines the engine still advances, and the
// others get their turn.
func TestOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	a, b := pair(t, sim.Options{Caps: sim.CapsLike("tcp"), MaxDelay: 2})
	ctx := testutil.Context(t, 60*time.Second)
	var turns atomic.Int64
	var g errgroup.Group
	stop := make(chan struct{})
	g.Go(func() error {
		for {
			select {
			case <-stop:
				return nil
			default:
				turns.Add(1)
				runtime.Gosched()
			}
		}
	})
	for _, s := range []*side{a, b} {
		o := &op{}
		for range 200 {
			require.NoError(t, s.write(ctx, o))
		}
	}
	close(stop)
	require.NoError(t, g.Wait())
	require.Positive(t, turns.Load())
}

func TestProgressByHand(t *testing.T) {
	a, _ := pair(t, sim.Options{MaxDelay: 10})
	o := &op{}
	a.push(o)
	a.eng.Kick()
	testutil.Eventually(t, 20*time.Second, func() bool { a.eng.Progress(); return o.Done() }, "done")
	require.Equal(t, fabric.StatusOK, o.status)
}

func TestKickAndWaitDoNotAllocate(t *testing.T) {
	a, _ := pair(t, sim.Options{})
	o := &op{}
	ctx := context.Background()
	require.NoError(t, a.write(ctx, o))
	n := testutil.AllocsPerRun(200, func() {
		if a.write(ctx, o) != nil {
			panic("write failed")
		}
	})
	require.Zero(t, n)
}

func BenchmarkWriteAndWait(b *testing.B) {
	s, _ := pair(b, sim.Options{})
	o := &op{}
	ctx := context.Background()
	for b.Loop() {
		if err := s.write(ctx, o); err != nil {
			b.Fatal(err)
		}
	}
}

var shortOfDescriptors = testutil.NewChild("short of descriptors", func(_ []string, _ *bufio.Reader, out io.Writer) error {
	ev, err := event.New()
	if err != nil {
		return err
	}
	set, err := event.NewSet() // the runtime may take descriptors at the first: let it
	if err != nil {
		return err
	}
	free, err := unix.Dup(ev.FD())
	if err != nil || set.Close() != nil || unix.Close(free) != nil {
		return fmt.Errorf("first free descriptor: %w", err)
	}
	links := []fabric.Link{&idle{ev: ev, armed: make(chan int64, 1)}}
	for more := range 2 { // the event's, then the set's is missing
		lim := unix.Rlimit{Max: 1 << 10}
		setLimit(&lim.Cur, free-1+more)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
			return err
		}
		if _, err := New(links, nothing{}, cpu.SpinPolicy{}, cpu.NoHome, 1); !errors.Is(err, fabric.ErrResources) || !errors.Is(err, unix.EMFILE) {
			return fmt.Errorf("with %d descriptors more: %w", more, err)
		}
	}
	_, err = fmt.Fprintln(out, "told")
	return err
})

// setLimit assigns n to a limit, whose type depends on the system.
func setLimit[T int64 | uint64](limit *T, n int) { *limit = T(n) }

// An engine that there are no descriptors for says so, and what to do.
func TestNoDescriptors(t *testing.T) {
	require.Equal(t, "told", shortOfDescriptors.Start(t).Line(t, testutil.Limit))
}

// callback is a protocol that calls a function of the application, which panics.
type callback struct{ nothing }

func (callback) Pending() bool { return true }
func (callback) Step() bool    { panic("from the callback") }

var panicking = testutil.NewChild("panicking", func(args []string, _ *bufio.Reader, out io.Writer) (err error) {
	ev, err := event.New()
	if err != nil {
		return err
	}
	e, err := New([]fabric.Link{&idle{ev: ev, armed: make(chan int64, 1)}}, callback{}, cpu.SpinPolicy{}, cpu.NoHome, 1)
	if err != nil {
		return err
	}
	defer func() {
		recover()
		_, err = fmt.Fprintln(out, "recovered")
	}()
	ctx := context.Background()
	switch w := new(Waiter); args[0] {
	case "wait":
		return e.Wait(ctx, w)
	case "any":
		_, err = e.WaitAny(ctx, 0, Waiters{w})
		return err
	case "progress":
		e.Progress()
	case "do":
		e.Do(func() { panic("from the function") })
	case "kick":
		e.Kick()
	case "disown":
		e.Own()
		e.Disown()
	}
	return nil
})

// A panic of a callback ends the process, whichever goroutine drives: where it could be recovered
// the engine would be owned for ever.
func TestPanicsEndTheProcess(t *testing.T) {
	for _, how := range []string{"wait", "any", "progress", "do", "kick", "disown"} {
		p := panicking.Start(t, how)
		line, err := p.Out.ReadString('\n')
		require.ErrorIs(t, err, io.EOF, "%s: %s", how, line)
	}
}

// With the tag rmadebug the engine panics when somebody else than the owner acts.
func TestOwnersMethodsAssert(t *testing.T) {
	a, _ := pair(t, sim.Options{})
	owns := func() (ok bool) {
		defer func() { ok = recover() == nil }()
		a.eng.AssertOwned()
		return
	}
	require.Equal(t, !owned.On, owns())
	a.eng.Do(func() { require.True(t, owns()) })
	testutil.Eventually(t, testutil.Limit, a.eng.Hold, "the engine")
	require.True(t, owns())
	other := make(chan bool)
	go func() { other <- owns() }()
	require.Equal(t, !owned.On, <-other)
	a.eng.Disown()
}

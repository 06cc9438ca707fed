package progress

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/owned"
	"github.com/seed33544411/rma/internal/topo"
)

// ErrClosed means that the engine has been closed.
var ErrClosed = errors.New("progress: closed")

// ErrWaited means that another goroutine waits for the same operation.
var ErrWaited = errors.New("progress: another goroutine waits for it")

// Protocol is implemented by the layer that uses the links. The engine calls it as owner;
// it posts to endpoints directly. None of its methods may block or call the engine, except
// Waiter.Finish.
type Protocol interface {
	// Pending reports whether applications have posted work that Step has not started. Any
	// goroutine may call it.
	Pending() bool

	// Step starts posted work for which there is room, and polls memory that peers write.
	// It reports whether it did anything.
	Step() bool

	// Refuse ends posted work that Step has not started, because the engine is closed: links, and
	// memory that peers write, may be gone.
	Refuse()

	// Rest announces that the owner is about to sleep until a link has an event (true), or
	// that it will poll again (false; also without a preceding true). After true it returns
	// how long the sleep may last, 0 if without limit: for protocols that poll memory for
	// which links do not wake. Step is called once more before the sleep.
	Rest(on bool) time.Duration

	// Watches reports whether Step looks at memory that peers change by requests with fabric.FlagQuiet: they
	// then end a sleep. The owner calls it before each.
	Watches() bool

	// Complete handles completions of the link with that index. The slice belongs to the
	// engine.
	Complete(link int, cs []fabric.Completion)
}

// pollBatch is the number of completions of one poll: enough to drain a full send queue of
// small writes in a few calls; more would only cost cache.
const pollBatch = 64

// Owners.
const (
	ownerNone uint32 = iota
	ownerApp         // an application goroutine
	ownerLoop        // the progress goroutine
)

// States of the progress goroutine.
const (
	awake uint32 = iota
	dozing
	trusting // dozing, although goroutines are parked: another drives often
	asleep
)

// Engine polls links and drives a protocol. Any goroutine may call its methods.
type Engine struct {
	owner atomic.Uint32
	_     [60]byte // other goroutines than the owner write the words below

	want   atomic.Int32  // goroutines that wait in Do for ownership
	heir   atomic.Bool   // one goroutine spins for ownership; see contend
	parked atomic.Int32  // goroutines that wait without driving
	parks  atomic.Uint32 // number of times that one began to
	tired  atomic.Bool   // one of them has spun for long enough: others need not
	rest   atomic.Uint32

	held owned.Holder // the goroutine that is the owner, for assertions

	// Owner's.
	links  []fabric.Link
	serves []serves // links that report that they have served peers
	quiets []fabric.Watching
	proto  Protocol
	armed  bool
	napped bool   // armed by a waiter that naps, not by the progress goroutine
	drives uint64 // number of times that applications began to drive
	lucky  uint   // waits ended by Poller.Poll
	steps  uint   // waits ended by a step
	over   bool   // closed: links may not be used any longer, nor the protocol, except Pending and Refuse
	cs     [pollBatch]fabric.Completion

	policy     cpu.SpinPolicy
	contention *cpu.Contention // nil if the policy does not adapt

	naps    naps
	relay   relay
	events  *events
	begun   atomic.Bool // starts is not empty
	mu      sync.Mutex
	starts  []func()      // for the progress goroutine to call
	nudge   chan struct{} // wakes from dozing
	started atomic.Bool
	closed  atomic.Bool
	quit    chan struct{} // closed by Close
	ended   chan struct{} // closed when the progress goroutine has ended
	err     atomic.Pointer[error]
}

// serves finds out whether a poll of a link executed requests of peers.
type serves struct {
	link fabric.Serving
	seen uint32
}

// any reports whether requests have been executed since the last call.
// Hot path.
func (s *serves) any() bool {
	was := s.seen
	s.seen = s.link.Served()
	return s.seen != was
}

// New creates an engine for links, which the caller must close, after Close. Waits follow
// the spin policy, of a rank whose home is [cpu.Home], with load ranks per processor ([cpu.Load]). Start
// starts its goroutine, when the protocol is ready.
func New(links []fabric.Link, p Protocol, policy cpu.SpinPolicy, home int, load float64) (*Engine, error) {
	e := &Engine{
		links: links, proto: p, policy: policy,
		nudge: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{}),
	}
	if policy.Adapt {
		e.contention = cpu.NewContention(home, load)
	}
	for _, l := range links {
		if s, ok := l.(fabric.Serving); ok {
			e.serves = append(e.serves, serves{link: s})
		}
		if w, ok := l.(fabric.Watching); ok {
			e.quiets = append(e.quiets, w)
		}
	}
	var err error
	if e.events, err = newEvents(links); err != nil {
		return nil, fmt.Errorf("progress: %w", err)
	}
	if e.naps.events, err = newEvents(links); err != nil {
		return nil, fmt.Errorf("progress: %w", errors.Join(err, e.events.close()))
	}
	return e, nil
}

// Start starts the progress goroutine. Once. With extraP, GOMAXPROCS is one more while goroutines
// compute on all Ps, so that it reacts at once; see relay.
func (e *Engine) Start(extraP bool) {
	e.relay.init(extraP)
	e.started.Store(true)
	go e.run()
}

// StartOn is e.Start with the thread of the progress goroutine bound to the processors s, which
// may be others than those of the process.
func StartOn(e *Engine, s cpu.Set) error {
	bound := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := topo.BindThread(s)
		bound <- err
		if err != nil {
			runtime.UnlockOSThread()
			return
		}
		e.run()                                    // without a relay: a goroutine that is locked to its thread has no successor
		if topo.BindThread(cpu.Allowed()) == nil { // otherwise the thread ends with the goroutine
			runtime.UnlockOSThread()
		}
	}()
	err := <-bound
	e.started.Store(err == nil)
	return err
}

// Close ends the progress goroutine. Waiters that are not finished get ErrClosed; the
// caller should have ended them before. When it returns, the engine uses neither the protocol
// nor the links any longer, whatever method is called, except that the protocol refuses what is
// posted. Idempotent.
func (e *Engine) Close() error {
	if e.closed.CompareAndSwap(false, true) {
		close(e.quit)
		e.rouse()
		e.naps.wake()
	}
	if e.started.Load() {
		<-e.ended
	}
	err := e.naps.close()
	e.Do(func() { e.over = true }) // leaves no link armed
	return errors.Join(err, e.events.close())
}

// Outside calls f soon, in the progress goroutine, which is outside any bubble of
// testing/synctest that the caller may be in. f must not wait.
func (e *Engine) Outside(f func()) {
	e.mu.Lock()
	e.starts = append(e.starts, f)
	e.begun.Store(true)
	e.mu.Unlock()
	e.rouse()
}

// callOutside calls the functions passed to Outside.
func callOutside(e *Engine) {
	e.mu.Lock()
	fs := e.starts
	e.starts = nil
	e.begun.Store(false)
	e.mu.Unlock()
	for _, f := range fs {
		f()
	}
}

// Err returns an error of arming or waiting, after which the engine only polls at intervals
// instead of sleeping; normally nil.
func (e *Engine) Err() error {
	if p := e.err.Load(); p != nil {
		return *p
	}
	return nil
}

// SpinPolicy returns the policy of this engine's waits.
func (e *Engine) SpinPolicy() cpu.SpinPolicy { return e.policy }

// Kick makes the protocol start work that was just posted: at once if the engine has no
// owner, otherwise the owner does. It does not allocate, block or poll.
// Hot path.
func (e *Engine) Kick() {
	if !e.tryLock(ownerApp) {
		return // the owner checks Pending after it has released the engine
	}
	start(e)
	e.release()
}

// start is step for a goroutine that posts, and might recover the panic of a callback.
func start(e *Engine) {
	defer Crash()
	step(e)
}

// Own acquires ownership for a short time if it is free, and the engine not closed, in order to
// start work directly and to handle completed work at once. The protocol's Pending work is started first.
// Disown ends it. It does not allocate, block or poll.
// Hot path.
func (e *Engine) Own() bool {
	if !e.Hold() {
		return false
	}
	e.drives++
	return true
}

// Hold is Own for callers that do not poll for the results of the work: the progress
// goroutine continues to drive the links. Disown ends it.
// Hot path.
func (e *Engine) Hold() bool {
	if !e.tryLock(ownerApp) {
		return false
	}
	if e.over {
		e.release()
		return false
	}
	return true
}

// Disown ends what Own or Hold began.
func (e *Engine) Disown() { e.release() }

// Holder returns the holder for assertions that the calling goroutine is the owner.
func (e *Engine) Holder() *owned.Holder { return &e.held }

// AssertOwned panics, in programs built with the tag rmadebug, unless the calling
// goroutine is the owner.
// Hot path.
func (e *Engine) AssertOwned() { e.held.Assert() }

// Progress drives the links once, for goroutines that spin on memory that peers write. It
// reports whether anything happened; it returns false as well if another goroutine is
// driving.
func (e *Engine) Progress() bool {
	if !e.tryLock(ownerApp) {
		return false
	}
	defer Crash()
	e.drives++
	busy := e.pollOnce()
	e.release()
	return busy
}

// Do runs f as owner: for changes to links and endpoints that must not run concurrently
// with Poll. Set-up path. f must not call the engine.
func (e *Engine) Do(f func()) {
	e.want.Add(1)
	sp := cpu.Spinner{Policy: &e.policy}
	for !e.tryLock(ownerApp) {
		if sp.Wait() > 0 {
			runtime.Gosched() // the owner may be a goroutine that waits for this thread
		}
	}
	e.want.Add(-1)
	defer Crash()
	f()
	e.release()
}

// tryLock acquires ownership if it is free. Since the owner polls the links, it disarms
// links that were armed for sleeping, and notifies the sleeping goroutine.
func (e *Engine) tryLock(who uint32) bool {
	if e.owner.Load() != ownerNone || !e.owner.CompareAndSwap(ownerNone, who) {
		return false
	}
	e.held.Take()
	if e.armed {
		napped := e.napped
		e.disarm(len(e.links))
		if napped {
			e.naps.wake()
		} else {
			e.wake()
		}
	}
	return true
}

// release releases ownership. Work posted meanwhile, whose Kick failed, is started first.
// If no goroutine drives any longer, the progress goroutine does.
func (e *Engine) release() {
	if armed := lend(e); !armed && e.parked.Load() > 0 {
		e.wake()
	}
}

// lend is release for an owner that comes back soon: it does not wake the progress goroutine,
// which dozes. It reports whether the links are armed.
func lend(e *Engine) (armed bool) {
	for {
		armed = e.armed
		e.held.Drop()
		e.owner.Store(ownerNone)
		if !e.proto.Pending() || !e.tryLock(ownerApp) {
			return armed
		}
		start(e)
	}
}

// disarm undoes the Arm of the first n links. Owner's.
func (e *Engine) disarm(n int) {
	e.AssertOwned()
	e.armed, e.napped = false, false
	e.proto.Rest(false)
	for _, l := range e.links[:n] {
		l.Disarm()
	}
}

// pollOnce polls once. Owner's. It reports whether anything happened.
func (e *Engine) pollOnce() bool {
	e.AssertOwned()
	busy := step(e)
	return e.pollLinks() || busy
}

// step is Protocol.Step, or Refuse after Close. Owner's.
// Hot path.
func step(e *Engine) bool {
	e.AssertOwned()
	if e.over {
		e.proto.Refuse()
		return false
	}
	return e.proto.Step()
}

// pollLinks handles the completions of the links. Owner's. It reports whether there were
// any, or requests of peers that a poll executed.
func (e *Engine) pollLinks() (busy bool) {
	e.AssertOwned()
	if e.over {
		return false
	}
	for i, l := range e.links {
		if n := l.Poll(e.cs[:]); n > 0 {
			e.proto.Complete(i, e.cs[:n])
			busy = true
		}
	}
	for i := range e.serves {
		busy = e.serves[i].any() || busy
	}
	return busy
}

// passed records that a wait was ended by a step alone. If all waits of a goroutine ended
// so, it would keep the progress goroutine from polling, and completions would not be
// handled: therefore some of these waits poll. Owner's.
// Hot path.
func (e *Engine) passed() {
	e.AssertOwned()
	if e.steps++; e.steps%cheapPolls == 0 {
		e.pollLinks()
	}
}

// wake wakes the progress goroutine, unless it trusts in goroutines that drive.
func (e *Engine) wake() {
	switch {
	case e.rest.Load() == awake:
	case e.rest.CompareAndSwap(dozing, awake):
		e.nudgeLoop()
	case e.rest.CompareAndSwap(asleep, awake):
		e.events.wake()
	}
}

// rouse wakes the progress goroutine even if it trusts in goroutines that drive.
func (e *Engine) rouse() {
	if e.rest.CompareAndSwap(trusting, awake) {
		e.nudgeLoop()
		return
	}
	e.wake()
}

func (e *Engine) nudgeLoop() {
	if e.relay.on.Load() {
		e.events.wake()
	}
	select {
	case e.nudge <- struct{}{}:
	default:
	}
}

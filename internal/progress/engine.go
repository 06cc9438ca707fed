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
)

// ErrClosed says that the engine has been closed.
var ErrClosed = errors.New("progress: closed")

// ErrWaited is a wait for what somebody else waits for.
var ErrWaited = errors.New("progress: another goroutine waits for it")

// Protocol is what the links carry. The engine calls it as owner; it posts to
// endpoints directly. None of its methods may block or call the engine, except
// Waiter.Finish.
type Protocol interface {
	// Pending reports whether applications have posted work that Step has
	// not taken over. Called from any goroutine.
	Pending() bool

	// Step takes over what was posted, starts what there is room for, and
	// looks at memory that peers write. It reports whether it did anything.
	Step() bool

	// Rest tells that the owner is about to sleep until a link has an event
	// (true), and that it will poll again (false; also without true before).
	// After true it returns how long the sleep may last, 0 for as long as it
	// likes: for protocols that look at memory which links do not wake for.
	// Step is called once more before the sleep.
	Rest(on bool) time.Duration

	// Complete takes completions of the link with that index. The slice is the
	// engine's.
	Complete(link int, cs []fabric.Completion)
}

// pollBatch is how many completions one poll takes: enough that a full send
// queue of small writes drains in a few calls; more only costs cache.
const pollBatch = 64

// Owners.
const (
	ownerNone uint32 = iota
	ownerApp         // an application goroutine
	ownerLoop        // the progress goroutine
)

// How the progress goroutine rests.
const (
	awake uint32 = iota
	dozing
	asleep
)

// Engine polls links and drives a protocol. Its methods may be called from any
// goroutine.
type Engine struct {
	owner atomic.Uint32
	_     [60]byte // the words below are written by others than the owner

	want   atomic.Int32 // goroutines that wait in Do for ownership
	parked atomic.Int32 // goroutines that wait without driving
	tired  atomic.Bool  // one of them has been patient already: no need to be so again
	rest   atomic.Uint32

	held owned.Holder // what owner says, for assertions

	// Owner's.
	links  []fabric.Link
	proto  Protocol
	armed  bool
	drives uint64 // how often applications took to driving
	lucky  uint   // waits that looks have ended
	steps  uint   // and that a step has
	cs     [pollBatch]fabric.Completion

	policy cpu.SpinPolicy

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

// New makes an engine for links, which stay the caller's to close, after Close. Waits are
// as patient as said. Start starts its goroutine, when the protocol knows all it needs.
func New(links []fabric.Link, p Protocol, policy cpu.SpinPolicy) (*Engine, error) {
	e := &Engine{
		links: links, proto: p, policy: policy,
		nudge: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{}),
	}
	var err error
	if e.events, err = newEvents(links); err != nil {
		return nil, fmt.Errorf("progress: %w", err)
	}
	return e, nil
}

// Start starts the progress goroutine. Once.
func (e *Engine) Start() {
	e.started.Store(true)
	go e.loop()
}

// Close ends the progress goroutine. Waiters that are not finished get
// ErrClosed; the caller should have seen to it that there are none. Idempotent.
func (e *Engine) Close() error {
	if e.closed.CompareAndSwap(false, true) {
		close(e.quit)
		e.wake()
	}
	if e.started.Load() {
		<-e.ended
	}
	return e.events.close()
}

// Outside calls f in a while, in the progress goroutine: in no bubble of
// testing/synctest, where the caller may be. f must not wait.
func (e *Engine) Outside(f func()) {
	e.mu.Lock()
	e.starts = append(e.starts, f)
	e.begun.Store(true)
	e.mu.Unlock()
	e.wake()
}

// callOutside calls what Outside was given.
func (e *Engine) callOutside() {
	e.mu.Lock()
	fs := e.starts
	e.starts = nil
	e.begun.Store(false)
	e.mu.Unlock()
	for _, f := range fs {
		f()
	}
}

// Err is an error of arming or waiting, after which the engine only polls
// now and then instead of sleeping; nil as a rule.
func (e *Engine) Err() error {
	if p := e.err.Load(); p != nil {
		return *p
	}
	return nil
}

// SpinPolicy returns the policy of this engine's waits.
func (e *Engine) SpinPolicy() cpu.SpinPolicy { return e.policy }

// Kick lets the protocol take over work that was just posted: at once if
// nobody owns the engine, else by the owner. It does not allocate,
// block or poll.
// Hot path.
func (e *Engine) Kick() {
	if !e.tryLock(ownerApp) {
		return // the owner looks at Pending after it has let go
	}
	e.proto.Step()
	e.release()
}

// Own takes ownership if nobody has it, for a moment: to start work without a
// detour, and to take what is complete at once. The protocol's Pending work comes
// first. Disown ends it. It does not allocate, block or poll.
// Hot path.
func (e *Engine) Own() bool {
	if !e.tryLock(ownerApp) {
		return false
	}
	e.drives++
	return true
}

// Hold is Own for callers that do not poll for what comes of the work: driving the links
// stays the progress goroutine's. Disown ends it.
// Hot path.
func (e *Engine) Hold() bool { return e.tryLock(ownerApp) }

// Disown ends what Own or Hold began.
func (e *Engine) Disown() { e.release() }

// Holder is for assertions that the calling goroutine is the owner.
func (e *Engine) Holder() *owned.Holder { return &e.held }

// AssertOwned panics, in programs built with the tag rmadebug, unless the calling
// goroutine is the owner.
// Hot path.
func (e *Engine) AssertOwned() { e.held.Assert() }

// Progress drives the links once, for goroutines that spin on memory peers
// write. It reports whether anything happened; false as well if somebody else
// is driving.
func (e *Engine) Progress() bool {
	if !e.tryLock(ownerApp) {
		return false
	}
	e.drives++
	busy := e.pollOnce()
	e.release()
	return busy
}

// Do runs f as owner: for changes to links and endpoints that must not run
// beside Poll. Set-up path. f must not call the engine.
func (e *Engine) Do(f func()) {
	e.want.Add(1)
	sp := cpu.Spinner{Policy: &e.policy}
	for !e.tryLock(ownerApp) {
		if sp.Wait() > 0 {
			runtime.Gosched() // the owner may be a goroutine that waits for this thread
		}
	}
	e.want.Add(-1)
	f()
	e.release()
}

// tryLock takes ownership if it is free. The links are polled by the owner, so
// those that were armed for sleeping are disarmed, and the sleeper is told.
func (e *Engine) tryLock(who uint32) bool {
	if e.owner.Load() != ownerNone || !e.owner.CompareAndSwap(ownerNone, who) {
		return false
	}
	e.held.Take()
	if e.armed {
		e.disarm(len(e.links))
		e.wake()
	}
	return true
}

// release gives ownership up. Work that came meanwhile, whose Kick failed, is
// taken over first; and if nobody drives any more, the progress goroutine does.
func (e *Engine) release() {
	var armed bool
	for {
		armed = e.armed
		e.held.Drop()
		e.owner.Store(ownerNone)
		if !e.proto.Pending() || !e.tryLock(ownerApp) {
			break
		}
		e.proto.Step()
	}
	if !armed && e.parked.Load() > 0 {
		e.wake()
	}
}

// disarm takes back the Arm of the first n links. Owner's.
func (e *Engine) disarm(n int) {
	e.AssertOwned()
	e.armed = false
	e.proto.Rest(false)
	for _, l := range e.links[:n] {
		l.Disarm()
	}
}

// pollOnce makes one round. Owner's. It reports whether anything happened.
func (e *Engine) pollOnce() bool {
	e.AssertOwned()
	busy := e.proto.Step()
	return e.pollLinks() || busy
}

// pollLinks takes what the links have. Owner's. It reports whether they had any.
func (e *Engine) pollLinks() (busy bool) {
	e.AssertOwned()
	for i, l := range e.links {
		if n := l.Poll(e.cs[:]); n > 0 {
			e.proto.Complete(i, e.cs[:n])
			busy = true
		}
	}
	return busy
}

// passed notes that a wait has ended with a step alone. A goroutine whose
// waits all end so would keep the progress goroutine from polling, and completions
// would not be seen: some of these waits poll all the same. Owner's.
// Hot path.
func (e *Engine) passed() {
	e.AssertOwned()
	if e.steps++; e.steps%looks == 0 {
		e.pollLinks()
	}
}

// wake ends the progress goroutine's rest.
func (e *Engine) wake() {
	switch {
	case e.rest.Load() == awake:
	case e.rest.CompareAndSwap(dozing, awake):
		select {
		case e.nudge <- struct{}{}:
		default:
		}
	case e.rest.CompareAndSwap(asleep, awake):
		e.events.wake()
	}
}

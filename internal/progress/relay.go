package progress

import (
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/event"
)

// relay lets the progress goroutine react at once while goroutines of the application compute on
// all Ps of the scheduler. A goroutine that returns from a blocking system call then waits for
// a P, 10 ms for each goroutine that is ahead of it. Instead, while that is so:
//
//   - The process has one P more, on which the progress goroutine sleeps in system calls of which
//     the scheduler does not know.
//   - The scheduler takes a P away from a goroutine that has had it for 10 ms. So it is run in
//     turns of a few ms by one goroutine after the other. The successor stands by in the queue
//     of the P, where it is next when its predecessor ends, and begins with a time slice of its
//     own. It also takes over if the scheduler stops the sleeping goroutine before, as for the
//     garbage collector.
//   - Goroutines that an event has made runnable are in the same queue: the turn ends when the
//     event has been handled.
//   - Goroutines that wait neither sleep on the links nor yield while they own them.
//
// The words are the progress goroutine's, except for those that are atomic.
type relay struct {
	on      atomic.Bool
	allowed bool

	baton  atomic.Uint32 // standsBy, offered
	begun  int64         // Ticks, of the turn
	stood  bool          // a successor was started in this turn
	passed bool          // the turn should end
	busy   bool          // events have been handled since the last sleep
	queued uint64        // runnable goroutines after that sleep
	idle   int64         // Ticks, of the first poll since then in vain, 0 if none
	vain   int           // sleeps without a spin after the last spin in vain, 0 after one that found an event
	skip   int           // of these, those that are left
	thread int           // with a short time slice, 0 if none
	looked int64         // Ticks, of the last look at the load
	looks  int           // that disagree with on, less those that agree
	late   bool          // a short sleep has ended late since looks was 0

	load [2]metrics.Sample
}

// Bits of relay.baton.
const (
	standsBy uint32 = 1 << iota // a successor has been started and has not run yet
	offered                     // the turn has ended: the successor continues
)

const (
	// turnTime is the longest turn. The scheduler takes a P away from a goroutine that has had
	// it for 10 ms, by its clock, which may begin some µs before the turn.
	turnTime = 8 * time.Millisecond

	// spinTime is the time of polls in vain before it sleeps: longer than the round trip of a peer that
	// asks again at once, and short for goroutines that could compute. It does not yield meanwhile,
	// since other threads would compute for a time slice. A peer that waits for the same processor
	// cannot ask meanwhile, and gets its answer so much later: after each spin in vain, twice as many sleeps
	// as before, up to maxVain, begin without one.
	spinTime = 30 * time.Microsecond
	maxVain  = 256

	// lateSleep is the time by which a sleep of lookEvery ends too late if a goroutine that
	// computes has the P: the scheduler takes that away after 10 ms. Goroutines that handle messages
	// leave it sooner, and need no relay, which would cost them processor time.
	lateSleep = 4 * time.Millisecond

	// lookEvery is the least time between two looks at the scheduler's load, fullLooks the number of
	// them with goroutines for all Ps, less the others, that begin the relay, and roomyLooks the
	// number of others, less those, that ends it: goroutines that handle messages need all Ps for a moment, and a
	// computing one that waits for a message leaves its P for a moment.
	lookEvery  = 2 * time.Millisecond
	fullLooks  = 4
	roomyLooks = 64
)

// computes reports whether goroutines of the application compute, so that the progress goroutine,
// which has or will have a P, should sleep on the links. A waiter that has slept there would wait for a P
// before it could answer a peer.
// Hot path.
func computes(e *Engine) bool {
	return e.relay.allowed && (e.relay.on.Load() || e.contention != nil && e.contention.Computes())
}

// init prepares the relay, which is off, and remains so if it is not allowed. Before the progress
// goroutine starts.
func (r *relay) init(allowed bool) {
	r.allowed = allowed && event.Raw
	r.load[0].Name = "/sched/goroutines/running:goroutines"
	r.load[1].Name = "/sched/goroutines/runnable:goroutines"
}

// count returns the numbers of goroutines that run and that could.
func (r *relay) count() (running, runnable uint64) {
	metrics.Read(r.load[:])
	if r.load[0].Value.Kind() != metrics.KindUint64 {
		return 1, 0 // a later runtime without these metrics
	}
	return r.load[0].Value.Uint64(), r.load[1].Value.Uint64()
}

// woke reports whether the events that have been handled since the last sleep may have made
// goroutines runnable, which are in the queue of this P.
func (r *relay) woke() bool {
	if !r.busy {
		return false
	}
	r.busy = false
	_, n := r.count()
	return n > r.queued
}

// crowded reports whether other goroutines than the caller could use n Ps at this moment.
func (r *relay) crowded(n int) bool {
	running, runnable := r.count()
	return running-1+runnable >= uint64(n)
}

// due reports whether the turn has to end.
// Hot path.
func (r *relay) due() bool {
	return r.on.Load() && (r.passed || cpu.Duration(cpu.Ticks()-r.begun) >= turnTime)
}

// spins reports whether the goroutine should poll once more before it sleeps.
func (r *relay) spins() bool {
	now := cpu.Ticks()
	if r.idle == 0 {
		if r.skip > 0 {
			r.skip--
			return false
		}
		r.idle = now
	}
	cpu.Pause()
	if cpu.Duration(now-r.idle) < spinTime {
		return true
	}
	r.vain = min(max(2*r.vain, 1), maxVain)
	r.skip = r.vain
	return false
}

// found remembers that a poll has found an event.
func (r *relay) found() {
	if r.busy = true; r.idle != 0 { // while it spun
		r.vain = 0
	}
	r.idle = 0
}

// turn begins the turn of the calling goroutine.
func (r *relay) turn() {
	r.begun, r.stood, r.passed = cpu.Ticks(), false, false
	if id := cpu.ThreadID(); id != r.thread {
		r.lengthen()
		cpu.ShortSlice(id, true)
		r.thread = id
	}
}

// lengthen gives the thread of the last turn the default time slice.
func (r *relay) lengthen() {
	if r.thread != 0 {
		cpu.ShortSlice(r.thread, false)
		r.thread = 0
	}
}

// look looks at the load, and begins or ends the relay. It reports whether the next look should
// follow soon.
func (r *relay) look() (soon bool) {
	if !r.allowed {
		return false
	}
	on := r.on.Load()
	now := cpu.Ticks()
	if cpu.Duration(now-r.looked) < lookEvery {
		return on || r.looks > 0
	}
	r.looked = now
	if on && !psAreOurs() { // the application counts on all the Ps that it has asked for
		r.leave()
		return true
	}
	n := runtime.GOMAXPROCS(0)
	if on {
		n-- // the one more
	}
	standing := int(r.baton.Load() & standsBy) // 1 if a successor is runnable
	if r.crowded(n+standing) == on {
		r.looks = max(r.looks-1, 0)
		r.late = r.late && r.looks > 0
		return on || r.looks > 0
	}
	r.looks++
	switch {
	case !on && r.late && r.looks >= fullLooks:
		r.looks = 0
		addPs(1)
		r.on.Store(true)
		r.turn()
	case on && r.looks == roomyLooks:
		r.leave()
	}
	return true
}

// leave ends the relay, if it is on.
func (r *relay) leave() {
	r.looks = 0
	if r.on.CompareAndSwap(true, false) {
		r.lengthen()
		addPs(-1)
	}
}

// standBy starts the goroutine that continues l when the turn ends.
func standBy(l *loop) {
	r := &l.eng.relay
	r.stood = true
	r.baton.Or(standsBy)
	go l.next()
	go func() {}() // takes the place of the next one, whose goroutine shares the time slice of this
}

// succeed continues l if its goroutine has ended its turn, and otherwise ends.
func succeed(l *loop) {
	r := &l.eng.relay
	if r.baton.Swap(0)&offered != 0 {
		r.turn()
		if !l.asleep {
			l.eng.rest.Store(awake) // the predecessor may have dozed
		}
		l.resume()
	}
}

// pass ends the turn: the calling goroutine must end.
func pass(l *loop) {
	r := &l.eng.relay
	for !r.baton.CompareAndSwap(standsBy, standsBy|offered) {
		standBy(l)
	}
}

// rest sleeps for at most d, until the turn ends, or until a wake-up, or an event of a link if
// links is set. It returns false if the turn has ended and another goroutine continues l.
func (r *relay) rest(l *loop, d time.Duration, links bool) (ready, mine bool, err error) {
	if !r.stood {
		standBy(l)
	}
	left := turnTime - cpu.Duration(cpu.Ticks()-r.begun)
	ready, interrupted, err := l.eng.events.waitRaw(min(d, left), links, &r.baton, offered)
	if interrupted && r.baton.Load() == offered { // another P has run the successor too early
		standBy(l)
	}
	if ready {
		_, r.queued = r.count()
	}
	return ready, !interrupted, err
}

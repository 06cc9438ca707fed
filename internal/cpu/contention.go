package cpu

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Contention is what the waits of a process know of other threads that want its processors.
// A yield that returned late has run another thread: for a while all waits that can sleep do
// so at once. A sleeping thread that is woken runs before one that has used its time, while a
// thread that spins or yields beside a busy one gets the processor back a time slice later,
// and has kept it meanwhile from the ranks that it waits for.
//
// The time doubles whenever a yield afterwards, which is the probe, is late again.
//
// A yield that returned soon, but not at once, may have run a thread that yields as well, such
// as the awaited rank on the same processor: the two take turns. Meanwhile waits yield after one
// poll, because a spin delays the thread that has the answer. A slow yield alone is no sign of
// that: an interrupt or a cold cache makes one as long. So the next yield must have switched
// threads, as the kernel counts it.
//
// The kernel leaves two threads that take turns where they are, even if another processor is
// idle: what has run a short time ago stays where its cache is. If each rank can have a processor
// of its own, a thread of a rank that takes turns elsewhere than at home, see [Home], goes there,
// and returns if a thread computes there. The time until the next try doubles in that case.
//
// A turn of other goroutines of the process that took as long as the scheduler lets one compute
// has run one that computes: after several, waits do without such turns for a while, until they sleep, see
// [Spinner.Turn]. The turn of a goroutine that waits itself, and yields, may take as long where ranks share
// the processor, which compute meanwhile; so the time counts since the last yield of the process.
// Any goroutine may call its methods.
type Contention struct {
	threads  period       // threads that want the processors
	compute  period       // goroutines of this process that compute
	settled  period       // after a way home
	longs    atomic.Int32 // turns in which a goroutine may have computed, longWeight each, less the others
	turns    atomic.Int32 // empty yields until waits spin again
	sure     atomic.Int32 // yields that count as turns without a look at the kernel's count
	asked    atomic.Bool  // whether the next yield switches threads
	lates    atomic.Int32 // late yields, lateWeight each, less the others
	late     int64        // ticks of the shortest yield that has run a thread that computes
	tooLate  int32        // value of lates at which waits sleep
	long     int64        // ticks of the shortest turn in which a goroutine has computed
	least    int64        // ticks of a first period
	most     int64
	switched int64 // ticks of the shortest yield that has run another thread
	short    int64 // ticks of the shortest that is not a turn because it is too long
	home     int   // the processor of this rank, or NoHome
	switches func() (n int64, ok bool)
	settle   func(home int, late int64) (moved bool)
}

// period is a time in which waits adapt to something, unless it is over.
type period struct {
	until atomic.Int64 // Ticks
	span  atomic.Int64 // ticks of the last period
}

// now reports whether the period lasts.
// Hot path.
func (p *period) now() bool {
	until := p.until.Load()
	return until != 0 && Ticks() < until
}

// begin begins a period at now of least ticks, or of twice as many as the last, but at most
// most, if it follows that one.
func (p *period) begin(now, least, most int64) {
	span, until := p.span.Load(), p.until.Load()
	if span > 0 && now-until < span {
		span = min(2*span, most)
	} else {
		span = least
	}
	p.span.Store(span)
	p.until.Store(now + span)
}

const (
	// lateYield is the time of a yield that has run a thread that computes: such a thread keeps
	// the processor for a time slice of 1 to 4 ms. Threads of ranks that answer, or of goroutines
	// that handle what has arrived, give it back after 10 to 100 µs; waits go on spinning beside
	// them. With a limit of 25 µs, HTTP over rmanet between two engines of an idle process took
	// four times as long; with 250 µs, seven ranks on the same processor that copy or wake up
	// were taken for one, and a barrier of 16 ranks on two processors took six times as long.
	lateYield = 600 * time.Microsecond

	// lateEmpty is lateYield in empty yields for each other rank that shares the processor: on machines where
	// system calls and switches between processes take ten times as long, as some virtual ones, ranks
	// that only answer each other keep the processor that much longer. With lateYield alone eight ranks on
	// two such processors took each other for threads that compute (docs/progress.md).
	lateEmpty = 300

	// Waits of a rank that shares its processor with others sleep after sureLates late yields in sequence, or after more of
	// which each follows fewer than lateWeight others: of the yields of eight ranks on two processors that
	// only answer each other one in 2000 is late. Beside a thread that computes nearly all are. With three, ranks over tcp,
	// whose turns contain system calls, mostly slept (docs/figures.md).
	lateWeight = 8
	sureLates  = 10

	// longTurn is the time of a turn in which a goroutine has computed: the scheduler takes the
	// P away from it after 10 to 20 ms.
	longTurn = 5 * time.Millisecond

	// sureTurns is the number of long turns, with fewer than longWeight others for each, after which
	// goroutines compute: servers of HTTP, and ranks that share a processor and copy, had single ones. A
	// goroutine that computes takes every second turn at least.
	sureTurns  = 2
	longWeight = 4

	// minShared and maxShared bound the periods. The probe costs up to a time slice of the
	// other thread, 1 to 4 ms; a period that is too long costs waits that could have spun the
	// time of a sleep and a wake-up.
	minShared = 2 * time.Millisecond
	maxShared = 128 * time.Millisecond

	// Periods without turns of goroutines that compute are maxShared to longest times as long:
	// a probe costs 10 to 20 ms for each such goroutine, and a period that is too long costs
	// other goroutines the time of some yields.
	longest = 8 // and between ways home up to maxShared to longest times as long

	// turnYield and shortYield bound the time of a yield that has run a thread that takes
	// turns, as multiples of an empty yield, 0.2 µs. A switch there and back takes 1.2 µs in
	// all, and several other threads may copy or handle messages in between. With a limit of
	// 250 µs, a barrier beside a busy thread took two to three times as long; with 10 µs, an
	// alltoall of 8 ranks on two processors took up to eight times as long.
	turnYield  = 2.5
	shortYield = 200

	// emptyYields is the number of yields without another thread after which the turns are
	// over. Of the yields beside a thread that yields, up to a quarter return at once.
	emptyYields = 16

	// sureYields is the number of yields for which the kernel's count of switches holds: it takes
	// two system calls and a yield.
	sureYields = 64
)

// NewContention returns an account without contention of a rank with a home, or NoHome, and load
// ranks per processor, see [Load].
func NewContention(home int, load float64) *Contention {
	ticks := func(d time.Duration) int64 { return int64(float64(d) / NsPerTick()) }
	empty := float64(emptyYield())
	sure := int32(1)
	if load > OneEach {
		sure = sureLates
	}
	return &Contention{
		tooLate: (sure-1)*lateWeight + 1,
		late:    max(ticks(lateYield), int64(lateEmpty*(load-1)*empty)), long: ticks(longTurn), least: ticks(minShared), most: ticks(maxShared),
		switched: int64(turnYield * empty), short: int64(shortYield * empty),
		home: home, switches: switches, settle: settle,
	}
}

// Shared reports whether other threads wanted this process's processors a short time ago.
// Hot path.
func (c *Contention) Shared() bool { return c.threads.now() }

// TakesTurns reports whether the last yields ran threads that yielded soon.
// Hot path.
func (c *Contention) TakesTurns() bool { return c.turns.Load() > 0 }

// Computes reports whether goroutines of this process compute: in several of the last turns they have.
// Hot path.
func (c *Contention) Computes() bool {
	return c.longs.Load() > (sureTurns-1)*longWeight && c.compute.now()
}

// yield yields the processor and reports whether a thread that computes has run.
func (c *Contention) yield() (late bool) {
	var before int64
	known := false
	asked := c.asked.Load() && c.asked.CompareAndSwap(true, false)
	if asked {
		before, known = c.switches()
	}
	begun := Ticks()
	Yield()
	now := Ticks()
	if asked && now-begun < c.late {
		if after, ok := c.switches(); !known || !ok || after != before {
			c.confirmed(now)
		}
	}
	return c.yielded(now-begun, now)
}

// takeTurns remembers that yields run threads that yield soon, if the next one does, which the
// caller, or another wait, makes after a poll: the thread that has run may have answered.
func (c *Contention) takeTurns() {
	if c.sure.Load() <= 0 || c.sure.Add(-1) < 0 { // not lower and lower: it would wrap
		c.asked.Store(true)
		return
	}
	c.turns.Store(emptyYields)
}

// confirmed remembers that a yield which followed a slow one has switched threads. The time is now.
func (c *Contention) confirmed(now int64) {
	if c.home != NoHome && !c.settled.now() {
		c.settled.begin(now, c.least, longest*c.most)
		if c.settle(c.home, c.late) {
			c.settled.span.Store(0) // the next period is a first one
		}
		return
	}
	c.sure.Store(sureYields)
	c.turns.Store(emptyYields)
}

// yielded is yield for a yield of the given time in ticks, which ended at now.
func (c *Contention) yielded(took, now int64) (late bool) {
	n := c.lates.Load()
	if took >= c.late {
		n = min(n+lateWeight, c.tooLate-1+lateWeight)
		c.lates.Store(n)
		if late = n >= c.tooLate; late {
			c.threads.begin(now, c.least, c.most)
		}
		return late
	}
	if n > 0 {
		c.lates.Store(n - 1)
	}
	switch {
	case took < c.switched:
		if n := c.turns.Load(); n > 0 {
			c.turns.Store(n - 1)
		}
	case took < c.short:
		c.takeTurns()
	}
	return false
}

// turn runs other goroutines of the process, and remembers whether they compute.
func (c *Contention) turn() {
	begun := Ticks()
	runtime.Gosched()
	now := Ticks()
	c.turned(now-max(begun, lastYield.Load()), now)
}

// turned is turn for a turn of the given time in ticks, or of so much since a yield, which ended at now.
func (c *Contention) turned(took, now int64) {
	n := c.longs.Load()
	if took >= c.long {
		c.compute.begin(now, c.most, longest*c.most)
		c.longs.Store(min(n+longWeight, 2*sureTurns*longWeight))
	} else if n > 0 {
		c.longs.Store(n - 1)
	}
}

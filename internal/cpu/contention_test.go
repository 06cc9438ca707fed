package cpu

import (
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// A late yield makes the waits of a period short; the periods grow while the probes after
// them are late as well.
func TestPeriodsOfContention(t *testing.T) {
	c := NewContention(NoHome, 1)
	require.False(t, c.Shared())
	now := int64(1 << 40)
	span := func() int64 { c.threads.begin(now, c.least, c.most); return c.threads.until.Load() - now }
	require.Equal(t, c.least, span())
	for want := 2 * c.least; want < c.most; want *= 2 {
		now = c.threads.until.Load() + 1
		require.Equal(t, want, span())
	}
	for range 2 {
		now = c.threads.until.Load() + 1
		require.Equal(t, c.most, span())
	}
	now = c.threads.until.Load() + c.most
	require.Equal(t, c.least, span(), "a quiet while in between")

	c.threads.until.Store(Ticks() + c.most*1000)
	require.True(t, c.Shared())
	c.threads.until.Store(Ticks())
	require.False(t, c.Shared())
}

// While the processor is shared, a wait that can sleep looks twice and does not yield.
func TestSharedProcessorsEndSpins(t *testing.T) {
	c := NewContention(NoHome, 1)
	c.short = 0 // no yield is a turn
	s := Spinner{Policy: &Roomy, Contention: c}
	spins := func() (n int) {
		for s.Reset(); s.Wait() == 0; n++ {
		}
		return n
	}
	require.Equal(t, Roomy.Polls+Roomy.Pauses, spins())
	c.threads.until.Store(Ticks() + c.most*1000)
	require.Equal(t, 1, spins())
	require.True(t, s.Weary())
	s.Reset()
	s.Patient = true
	for range Roomy.Polls + Roomy.Pauses {
		require.Zero(t, s.Wait())
	}
	require.NotZero(t, s.Wait())

	c.threads.until.Store(0)
	c.late = 0 // every yield counts as late
	require.Equal(t, Roomy.Polls+Roomy.Pauses, spins())
	require.True(t, s.Weary())
	require.True(t, c.Shared() || c.threads.span.Load() > 0)
	require.Zero(t, testing.AllocsPerRun(100, func() { s.Reset(); s.Wait() }))
}

// A rank that shares its processor with others of the job needs several late yields in a row, or nearly:
// single ones are ranks that were late. While probes find a thread that computes, one is enough.
func TestSingleLateYieldsOfCrowdedRanks(t *testing.T) {
	c := NewContention(NoHome, 4)
	const empty = 0
	yields := func(took int64, n int) (late int) {
		for range n {
			if c.yielded(took, Ticks()) {
				late++
			}
		}
		return late
	}
	for range 100 {
		require.Zero(t, yields(c.late, sureLates-1))
		require.Zero(t, yields(empty, (sureLates-1)*lateWeight))
	}
	yields(empty, lateWeight*sureLates)
	require.False(t, c.Shared())
	require.Equal(t, 1, yields(c.late, sureLates))
	require.Equal(t, 5, yields(c.late, 5), "probes")
	yields(empty, lateWeight-1)
	require.Equal(t, 1, yields(c.late, 1))
	yields(empty, 2*lateWeight)
	require.Zero(t, yields(c.late, 1))

	alone := NewContention(NoHome, 1)
	require.True(t, alone.yielded(alone.late, Ticks()), "each rank has a processor")
}

// While yields run threads that yield soon, a wait yields at its first step; yields that run
// no thread, or one that computes, do not count.
func TestTurnsReplaceSpins(t *testing.T) {
	c := NewContention(NoHome, 1)
	require.Positive(t, c.switched)
	require.Less(t, c.switched, c.short)
	c.switched, c.short, c.late = -2, -1, math.MaxInt64 // the yields of s itself are none of these
	c.sure.Store(math.MaxInt32)
	const empty, turn, long = -3, -2, -1
	s := Spinner{Policy: &Roomy, Contention: c}
	first := func() int { s.Reset(); return s.Wait() }
	require.Zero(t, first())
	require.False(t, c.yielded(empty, 0))
	require.False(t, c.yielded(long, 0))
	require.Zero(t, first())

	require.False(t, c.yielded(turn, 0))
	for y := 1; y <= Roomy.Yields; y++ {
		require.False(t, s.Weary())
		require.Equal(t, y, s.Wait())
	}
	require.True(t, s.Weary())
	require.Equal(t, 1, first())
	require.Zero(t, testing.AllocsPerRun(100, func() { first() }))

	for range emptyYields {
		require.True(t, c.TakesTurns())
		require.False(t, c.yielded(empty, 0))
	}
	require.False(t, c.TakesTurns())
	require.Zero(t, first())

	const late = 1 << 40
	c.late = late
	require.True(t, c.yielded(late, Ticks()))
	require.False(t, c.TakesTurns())
	require.True(t, c.yielded(late, Ticks()+c.most*1000))
	c.yielded(turn, 0)
	require.Zero(t, first(), "the processor is shared with a thread that computes")
	require.True(t, s.Weary())
}

// A wait gives goroutines of the process turns, unless these compute; then it does so again
// when a while has passed. A caller that holds what they need gives the turns itself.
func TestTurnsOfGoroutines(t *testing.T) {
	c := NewContention(NoHome, 1)
	c.short, c.late, c.long = 0, math.MaxInt64, math.MaxInt64 // whatever the machine does
	s := Spinner{Policy: &Roomy, Contention: c, Holds: true}
	turns := func() (n int) {
		for s.Reset(); !s.Weary(); {
			if s.Wait() > 0 && s.Due() {
				s.Turn()
				require.False(t, s.Due())
				n++
			}
		}
		return n
	}
	require.Equal(t, Roomy.Yields/4, turns())

	c.long = 1 << 40
	c.turned(c.long-1, Ticks())
	require.Equal(t, Roomy.Yields/4, turns(), "a short turn")
	c.turned(c.long, Ticks()+c.most*1000)
	require.False(t, c.Computes())
	require.Equal(t, Roomy.Yields/4, turns(), "one long turn")
	c.turned(c.long, Ticks()+c.most*1000)
	c.turned(c.long, Ticks()+c.most*1000)
	for range longWeight {
		require.True(t, c.Computes())
		require.Zero(t, turns())
		c.turned(c.long-1, Ticks())
	}
	require.False(t, c.Computes(), "short turns")
	require.False(t, c.Shared(), "threads are another matter")
	for range 20 {
		c.turned(c.long, c.compute.until.Load())
		require.LessOrEqual(t, c.compute.span.Load(), longest*c.most)
	}
	require.Equal(t, longest*c.most, c.compute.span.Load())
	c.compute.until.Store(Ticks())
	require.Equal(t, Roomy.Yields/4, turns(), "afterwards")

	s.Holds = false
	c.long = 0 // every turn counts as long
	for s.Reset(); !s.Weary(); s.Wait() {
	}
	require.NotZero(t, c.compute.until.Load(), "without Holds, Wait gives the turns")
	require.False(t, s.Due())
	s.Locked, s.Holds = true, true
	c.compute.until.Store(0)
	require.Zero(t, turns(), "a locked thread")
}

// A goroutine that waits, and yields, does not compute, however long its turn is.
func TestTurnsOfWaits(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	c := NewContention(NoHome, 1)
	for try := 0; ; try++ {
		c.longs.Store(0)
		waited := make(chan bool)
		go func() {
			for end := Ticks() + 2*c.long; Ticks() < end; {
				Yield()
			}
			close(waited)
		}()
		begun := Ticks()
		c.turn()
		long := Ticks()-begun > c.long
		<-waited
		if long && c.longs.Load() == 0 {
			return
		}
		require.Less(t, try, 100, "always taken for one that computes") // sometimes: another process may have run after the last yield
	}
}

// A slow yield counts as a turn only if the next one has switched threads; after that, others
// do without a look. Between the two the caller polls: no yield takes the place of a poll.
func TestSlowYieldsAreNoTurns(t *testing.T) {
	c := NewContention(NoHome, 1)
	c.switched, c.short, c.late = 0, 2, math.MaxInt64 // the yields of c itself are too long
	looks, step, count, known := 0, int64(0), int64(0), true
	c.switches = func() (int64, bool) {
		looks++
		count += step
		return count, known
	}
	slow := func() bool {
		require.False(t, c.yielded(1, 0))
		return c.TakesTurns()
	}
	require.False(t, c.yield())
	require.Zero(t, looks, "nobody asks")
	for n := 1; n <= 3; n++ {
		require.False(t, slow())
		require.False(t, c.yield())
		require.Equal(t, 2*n, looks)
		require.False(t, c.TakesTurns(), "it has run nobody")
	}
	step = 1
	require.False(t, slow())
	require.False(t, c.yield())
	require.True(t, c.TakesTurns())
	for range sureYields {
		require.True(t, slow())
		require.False(t, c.yield())
	}
	require.Equal(t, 8, looks)
	require.True(t, slow())
	require.False(t, c.yield())
	require.Equal(t, 10, looks)

	c.turns.Store(0)
	c.sure.Store(math.MinInt32)
	require.False(t, slow(), "however many there have been")

	c.turns.Store(0)
	c.sure.Store(0)
	known = false
	require.False(t, slow())
	require.False(t, c.yield())
	require.True(t, c.TakesTurns(), "a system that does not count")

	c.turns.Store(0)
	c.sure.Store(0)
	require.False(t, slow())
	c.late = 0 // every yield counts as late
	require.True(t, c.yield())
	require.False(t, c.TakesTurns(), "a thread that computes takes no turns")
}

// The kernel counts yields to another thread of the same processor.
func TestYieldSwitches(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	for range runtime.NumCPU() + 1 {
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
					Yield()
				}
			}
		}()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for n, ok := switches(); ok; {
		Yield()
		if after, _ := switches(); after != n {
			break
		}
	}
}

// Ranks that share a processor are not taken for threads that compute because a switch takes long on
// the machine: the time that a yield may take grows with that of an empty one, and with the ranks.
func TestLateOnSlowMachines(t *testing.T) {
	usual := int64(float64(lateYield) / NsPerTick())
	defer func(was int64) { calib.yield = was }(emptyYield())
	calib.yield = usual / 3000 // 0.2 µs
	for _, load := range []float64{0, 1, 4, 10} {
		require.Equal(t, usual, NewContention(NoHome, load).late)
	}
	calib.yield = usual / 200 // 3 µs
	require.Equal(t, usual, NewContention(NoHome, 1).late, "each rank has a processor")
	require.InDelta(t, 4.5*float64(usual), float64(NewContention(NoHome, 4).late), 0.01*float64(usual))
}

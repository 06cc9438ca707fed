package initiator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/testutil"
)

// An emulated atomic that others keep failing goes on at once a few times, then backs off,
// longer and longer, and gives up after many tries and a while.
func TestEmulatedAtomicBacksOff(t *testing.T) {
	a, _ := pair(t, sim.Options{})
	a.Prog.Do(func() {
		b := &a.backoff
		o := a.op(Emulated, 64)
		o.Emulate(onesided.RMW{Func: onesided.Set})
		for i := range minTries + 1 {
			o.Value = o.compare + 1 // somebody has changed it
			require.True(t, o.retry(), "try %d", i)
			if i < eagerTries {
				require.Same(t, o, a.Queue.words.redo.pop())
				continue
			}
			require.Equal(t, []*Op{o}, b.list)
			b.list = b.list[:0]
			wait := o.more.until - o.more.since
			require.LessOrEqual(t, o.more.until-b.now(), maxBackoff)
			require.GreaterOrEqual(t, wait, time.Duration(0))
		}
		require.NoError(t, o.Err)
		o.Value, o.more.since = o.compare+1, b.now()-2*a.opt.Contention
		require.False(t, o.retry())
		require.ErrorIs(t, o.Err, ErrContention)
		require.EqualValues(t, minTries+2, a.Queue.Counts().AtomicRetries)
		// One that finds what it does not want to change has read it, and is done.
		o.Err, o.more.rmw = nil, onesided.RMW{Func: onesided.SetIf, Compare: 5}
		o.Value = 6
		o.compare = 5
		require.False(t, o.retry())
		require.NoError(t, o.Err)
		// A sleep lasts until the first of those that back off goes on.
		later := a.op(Emulated, 64)
		later.Emulate(onesided.RMW{Func: onesided.Set})
		later.more.until = b.now() + 2*time.Hour
		o.more.until = b.now() + time.Hour
		b.list = append(b.list, later, o)
		require.Greater(t, a.Engine.Rest(), time.Duration(0))
		require.LessOrEqual(t, a.Engine.Rest(), time.Hour)
		o.more.until = 0
		require.Equal(t, time.Microsecond, a.Engine.Rest(), "0 would be without limit")
		b.list = b.list[:0]
		later.Drop()
		o.Drop()
	})
}

// Whatever is under way when a connection ends, nothing of it is left: no word has a head,
// nothing counts as out of order, and all memory for results is free.
func TestNothingIsLeftOfAConnection(t *testing.T) {
	a, _ := pair(t, sim.Options{Seed: 1, MaxDelay: 3, QueueFull: 0.2})
	src := make([]byte, 4096)
	_, err := a.do(t, addTo(a, src))
	require.NoError(t, err)
	ended, posted := 0, 0
	done := func(error) { ended++ }
	a.Prog.Do(func() {
		for i := range uint64(500) {
			for _, o := range []*Op{a.op(Emulated, 8*(i%4)), a.op(FetchAdd, 8*(i%8)), addTo(a, src), a.op(CompareSwap, 0)} {
				if o.kind == Emulated {
					o.Emulate(onesided.RMW{Func: onesided.Xor, Arg: i})
				}
				o.Then(done)
				a.Queue.Post(o)
				posted++
			}
		}
		a.Step()
		require.True(t, a.Queue.Busy())
	})
	a.Prog.Do(func() {
		_ = a.EP.Close()
		a.Down(fabric.ErrDown)
	})
	testutil.Eventually(t, testutil.Limit, func() (all bool) {
		a.Prog.Progress()
		a.Prog.Do(func() { all = ended == posted && a.Queue.Idle() })
		return all
	}, "the end of all")
	a.Prog.Do(func() {
		require.Zero(t, a.Queue.loose)
		require.Zero(t, a.Queue.words.n)
		require.Empty(t, a.Queue.requests.begun)
		require.Empty(t, a.backoff.list)
		require.Len(t, a.links[0].results.free, resultSlots)
		require.Len(t, a.inflight.free, len(a.inflight.ops))
	})
}

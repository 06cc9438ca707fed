package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/cpu"
)

func TestRecorder(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	require.Zero(t, r.latency(1))
	for i := int64(1); i <= 10_000; i++ {
		r.add(i * 1000)
	}
	r.add(-5) // a counter that seems to run backwards counts as zero
	us := cpu.NsPerTick() / 1000
	l := r.latency(1)
	require.Equal(t, int64(10_001), r.count)
	require.Zero(t, l.Min)
	require.InEpsilon(t, 10_000_000*us, l.Max, 1e-9)
	require.InEpsilon(t, 5_000_000*us, l.P50, 0.002)
	require.InEpsilon(t, 9_000_000*us, l.P90, 0.002)
	require.InEpsilon(t, 9_900_000*us, l.P99, 0.002)
	require.InEpsilon(t, 9_990_000*us, l.P999, 0.002)
	require.InEpsilon(t, 5_000_000*us, l.Mean, 0.002)
	require.InEpsilon(t, l.P50/2, r.latency(2).P50, 1e-9)
	r.add(10 * maxTicks)
	require.InEpsilon(t, 10*maxTicks*us, r.latency(1).Max, 1e-9)
	r.reset()
	require.Zero(t, r.latency(1))
	r.add(77)
	l = r.latency(1)
	require.Equal(t, l.Min, l.Max)
	require.Equal(t, l.Min, l.P50)
	require.Equal(t, l.Min, l.P999)
}

func TestNoSampleContainsTheHistogram(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	filled := 0
	for range 3000 {
		now := cpu.Ticks()
		next := r.lap(now-1000, now)
		if r.n > 0 {
			require.Equal(t, now, next)
			continue
		}
		filled++
		require.Greater(t, next, now)
	}
	require.Equal(t, 3000/len(r.buf), filled)
	require.Equal(t, r.latency(1).Min, r.latency(1).Max)
}

func TestRecorderAddAllocatesNothing(t *testing.T) {
	r := newRecorder()
	require.Zero(t, testing.AllocsPerRun(5000, func() { r.lap(0, 123_456) }))
}

func TestTimerCost(t *testing.T) {
	t.Parallel()
	ns := timerNS()
	require.Greater(t, ns, 0.0)
	require.Less(t, ns, 10_000.0)
}

func TestResultFill(t *testing.T) {
	t.Parallel()
	r := Result{Size: 1000}
	r.fill(2_000_000, 2*time.Second)
	require.InDelta(t, 1.0, r.Mmsgs, 1e-9)
	require.InDelta(t, 1000.0, r.MBs, 1e-6)
	r = Result{}
	r.fill(0, 0)
	require.Zero(t, r.MBs)
}

func TestPattern(t *testing.T) {
	t.Parallel()
	for n := range 70 {
		b := make([]byte, n)
		fill(b, 5)
		require.Equal(t, -1, check(b, 5), n)
		for i := range b {
			b[i] ^= 1
			require.Equal(t, i, check(b, 5))
			b[i] ^= 1
		}
		if n > 8 {
			require.GreaterOrEqual(t, check(b, 6), 0)
			require.GreaterOrEqual(t, check(b[1:], 5), 0, "shifted")
			require.GreaterOrEqual(t, check(b[8:], 5), 0, "shifted by a word")
		}
	}
}

package cpu

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTicksFollowTheClock(t *testing.T) {
	require.Greater(t, NsPerTick(), 0.0)
	t0, c0 := Ticks(), time.Now()
	for time.Since(c0) < 20*time.Millisecond {
		Yield()
	}
	got, want := Duration(Ticks()-t0), time.Since(c0)
	// A preemption between the two reads shows as a difference, so the bound
	// is loose: it catches wrong units, not noise.
	require.InDelta(t, float64(want), float64(got), float64(want)/4)
}

func TestSpinnerYieldsInTheEndAndAllocatesNothing(t *testing.T) {
	var s Spinner
	n := 0
	for s.Wait() == 0 {
		n++
		require.Less(t, n, 10_000, "spins without ever yielding")
	}
	require.Greater(t, s.Wait(), 1)
	s.Reset()
	if multi {
		require.Zero(t, s.Wait())
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { s.Wait(); Ticks(); Pause() }))
}

func BenchmarkTicks(b *testing.B) {
	for b.Loop() {
		Ticks()
	}
}

func BenchmarkYield(b *testing.B) {
	for b.Loop() {
		Yield()
	}
}

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

func TestSpinnerTakesItsSteps(t *testing.T) {
	for _, p := range []SpinPolicy{Roomy, Crowded, Single, {Looks: 1, Yields: 3}} {
		s := Spinner{Policy: &p}
		for range 2 {
			n := 0
			for s.Wait() == 0 {
				n++
				require.Less(t, n, 10_000, "spins without ever yielding")
			}
			require.Equal(t, p.Looks+p.Pauses, n)
			for y := 2; y < p.Yields; y++ {
				require.False(t, s.Weary())
				require.Equal(t, y, s.Wait())
			}
			s.Wait()
			require.True(t, s.Weary())
			s.Reset()
		}
	}
}

func TestSpinnerByDefault(t *testing.T) {
	var s Spinner
	d := Default()
	for range d.Looks + d.Pauses {
		require.Zero(t, s.Wait())
	}
	require.Equal(t, 1, s.Wait())
	require.False(t, s.Weary())
	s.Locked = true
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

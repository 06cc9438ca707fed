package cpu

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTicksFollowTheClock(t *testing.T) {
	require.Greater(t, NsPerTick(), 0.0)
	// The clock is read before and after both readings of the counter: the process may lose
	// its processor anywhere.
	c0, t0, c1 := time.Now(), Ticks(), time.Now()
	for time.Since(c1) < 20*time.Millisecond {
		Yield()
	}
	least, got, most := time.Since(c1), Duration(Ticks()-t0), time.Since(c0)
	// The bounds are loose: they catch wrong units, not noise.
	require.Greater(t, got, least*3/4)
	require.Less(t, got, most*5/4)
}

func TestSpinnerTakesItsSteps(t *testing.T) {
	for _, p := range []SpinPolicy{Roomy, Crowded, Single, {Polls: 1, Yields: 3}} {
		s := Spinner{Policy: &p}
		for range 2 {
			n := 0
			for s.Wait() == 0 {
				n++
				require.Less(t, n, 10_000, "spins without ever yielding")
			}
			require.Equal(t, p.Polls+p.Pauses, n)
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
	for range d.Polls + d.Pauses {
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

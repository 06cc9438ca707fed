package cpu

import (
	"math"
	"sync"
	"time"
)

var calib struct {
	once    sync.Once
	nsPerTk float64
	yield   int64 // ticks
}

// NsPerTick returns the length of one tick of [Ticks] in nanoseconds, measured once against
// the monotonic clock (about 10 ms, at the first call).
func NsPerTick() float64 {
	calib.once.Do(func() {
		// The clock is read between two reads of the counter; the narrowest of several tries
		// bounds the error of a preemption in between.
		edge := func() (tk int64, at time.Time) {
			best := int64(1<<63 - 1)
			for range 16 {
				a := Ticks()
				now := time.Now()
				b := Ticks()
				if b-a < best {
					best, tk, at = b-a, a+(b-a)/2, now
				}
			}
			return tk, at
		}
		t0, c0 := edge()
		calib.yield = math.MaxInt32
		for time.Since(c0) < 10*time.Millisecond {
			a := Ticks()
			Yield()
			if d := Ticks() - a; d > 0 {
				calib.yield = min(calib.yield, d)
			}
		}
		calib.yield = min(calib.yield, yieldCalls*systemCall())
		t1, c1 := edge()
		calib.nsPerTk = float64(c1.Sub(c0)) / float64(t1-t0)
	})
	return calib.nsPerTk
}

// yieldCalls is the most that a yield which runs no other thread takes, in short system calls. Beside
// a thread that computes none returns without running it, and all take thousands of times as long.
const yieldCalls = 4

// emptyYield returns the time in ticks of a yield that runs no other thread.
func emptyYield() int64 {
	NsPerTick()
	return calib.yield
}

// Duration converts a difference of two Ticks to time.
func Duration(ticks int64) time.Duration {
	return time.Duration(float64(ticks) * NsPerTick())
}

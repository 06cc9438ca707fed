package overlap

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/internal/bench"
)

// Work computes for a known duration: n iterations of arithmetic in registers.
func Work(n int64) {
	x := uint64(n) | 1
	for range n {
		x = x*6364136223846793005 + 1442695040888963407
	}
	sink.Store(x)
}

var sink atomic.Uint64

// Calibrate returns the iterations of Work in a nanosecond on an otherwise idle processor: the
// maximum over 50 ms and ten turns, most of which a busy machine interrupts.
func Calibrate() (perNS float64) {
	const turns = 100_000
	end := time.Now().Add(50 * time.Millisecond)
	for n := 0; n < 10 || time.Now().Before(end); n++ {
		start := time.Now()
		Work(turns)
		perNS = max(perNS, turns/float64(max(time.Since(start), 1)))
	}
	return perNS
}

// hog is goroutines that compute and never block.
type hog struct {
	done atomic.Int64 // turns of work
	over atomic.Bool
	g    sync.WaitGroup
}

// startHog starts n goroutines, each of which calls begin first. End them.
func startHog(n int, begin func()) *hog {
	h := &hog{}
	for range n {
		h.g.Go(func() {
			begin()
			for !h.over.Load() {
				Work(10_000)
				h.done.Add(1)
			}
		})
	}
	return h
}

func (h *hog) end() { h.over.Store(true); h.g.Wait() }

// rate returns the turns a second that h makes while f runs.
func (h *hog) rate(f func() error) (perSecond float64, err error) {
	start, had := time.Now(), h.done.Load()
	err = f()
	return float64(h.done.Load()-had) / time.Since(start).Seconds(), err
}

// copyTime returns the duration of a copy of n bytes on this machine: the median of several,
// from memory that another processor may have written.
func copyTime(n int) time.Duration {
	from, to := make([]byte, n), make([]byte, n)
	var ds []float64
	for i := range 21 {
		from[i%n]++
		start := time.Now()
		copy(to, from)
		ds = append(ds, float64(time.Since(start)))
	}
	return time.Duration(bench.Median(ds[1:]))
}

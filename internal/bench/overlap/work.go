package overlap

import (
	"sync"
	"sync/atomic"
	"time"
)

// work is computation of known length: n turns of arithmetic in registers.
func work(n int64) {
	x := uint64(n) | 1
	for range n {
		x = x*6364136223846793005 + 1442695040888963407
	}
	sink.Store(x)
}

var sink atomic.Uint64

// calibrate returns how many turns of work a nanosecond has while nothing else uses the
// processor: the most that was seen in 50 ms.
func calibrate() (perNS float64) {
	const turns = 100_000
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
		start := time.Now()
		work(turns)
		perNS = max(perNS, turns/float64(max(time.Since(start), 1)))
	}
	return perNS
}

// hog computes on n goroutines until the function that it returns is called.
func hog(n int) (end func()) {
	var over atomic.Bool
	var g sync.WaitGroup
	for range n {
		g.Go(func() {
			for !over.Load() {
				work(10_000)
			}
		})
	}
	return func() { over.Store(true); g.Wait() }
}

// copyTime returns how long one copy of n bytes takes here: the median of some, from memory
// that another processor may have written.
func copyTime(n int) time.Duration {
	from, to := make([]byte, n), make([]byte, n)
	var ds []float64
	for i := range 21 {
		from[i%n]++
		start := time.Now()
		copy(to, from)
		ds = append(ds, float64(time.Since(start)))
	}
	return time.Duration(median(ds[1:]))
}

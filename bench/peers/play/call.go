package play

import (
	"sync"
	"sync/atomic"
	"time"
)

// Caller is a client's Conn of a library whose messages are calls that return: the
// server runs no loop of its own, see Waiter.
type Caller interface {
	// Call sends msg and waits for an answer of n bytes. It may be called by several
	// goroutines at once.
	Call(msg []byte, n int) error
}

// Waiter is a server's Conn that answers calls by itself.
type Waiter interface{ Wait() error }

// callPing makes n calls, each answered by as many bytes as it sent.
func callPing(c Caller, msg []byte, n int) (trips []time.Duration, took time.Duration, err error) {
	every := n/maxSamples + 1
	trips = make([]time.Duration, 0, n/every+1)
	start := time.Now()
	last := start
	for i := range n {
		if err := c.Call(msg, len(msg)); err != nil {
			return nil, 0, err
		}
		now := time.Now()
		if i%every == 0 {
			trips = append(trips, now.Sub(last))
		}
		last = now
	}
	return trips, last.Sub(start), nil
}

// callStream makes n calls with empty answers, batch of them at a time.
func callStream(c Caller, msg []byte, n, batch int) (time.Duration, error) {
	var (
		all   sync.WaitGroup
		next  atomic.Int64
		once  sync.Once
		fault error
	)
	start := time.Now()
	for range min(batch, n) {
		all.Go(func() {
			for next.Add(1) <= int64(n) {
				if err := c.Call(msg, 0); err != nil {
					once.Do(func() { fault = err })
					return
				}
			}
		})
	}
	all.Wait()
	return time.Since(start), fault
}

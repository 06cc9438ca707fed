package main

import (
	"context"
	"sync/atomic"
	"time"
)

// pace is how fast an application computes, in units a second.
type pace float64

// compute works until stop says so. It stands for an application that has no time for
// the store: it calls nothing of package rma.
func compute(ctx context.Context, stop func() bool) (pace, error) {
	start, units, x := time.Now(), 0, uint64(1)
	for !stop() {
		for range 4096 { // a unit: some microseconds of a chain that nothing can shorten
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		units++
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
	}
	result.Store(x)
	return pace(float64(units) / time.Since(start).Seconds()), nil
}

// result keeps the compiler from leaving the work out.
var result atomic.Uint64

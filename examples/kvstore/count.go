package main

import (
	"math/bits"
	"time"
)

// The counts of clients. Each client accumulates its own into those of rank 0.
const (
	reads    = iota
	writes   // confirmed to a client
	again    // reads repeated because a slot was torn
	latency0 // of reads, from here on: the number in each bin
	counters = latency0 + bins
)

// Bins of times have a width of 1 ns up to 32 ns, and of 1/16 of a power of two beyond, so that
// a quantile is off by 6 % at most. The last one holds everything from a minute on.
const bins = 16 * 33

type counts [counters]uint64

func bin(d time.Duration) int {
	ns := uint64(max(d, 0))
	shift := max(bits.Len64(ns)-5, 0)
	return min(shift*16+int(ns>>shift), bins-1)
}

// end returns the upper end of a bin.
func end(bin int) time.Duration {
	if bin < 32 {
		return time.Duration(bin + 1)
	}
	return time.Duration(17+bin%16) << (bin/16 - 1)
}

func (c *counts) read(d time.Duration) {
	c[reads]++
	c[latency0+bin(d)]++
}

// quantile returns the time that this part of the reads did not exceed.
func quantile(c []uint64, part float64) time.Duration {
	left := part * float64(c[reads])
	for b, n := range c[latency0:] {
		if left -= float64(n); left <= 0 {
			return end(b)
		}
	}
	return end(bins - 1)
}

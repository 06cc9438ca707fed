package logp

import (
	"math"
	"math/bits"
)

// sizeKey maps sizes to 15 bits, ascending: exact below 2048, to one part in a
// thousand above. Which of two messages that near comes first decides nothing.
func sizeKey(m int64) uint32 {
	if m < 2048 {
		return uint32(m)
	}
	l := bits.Len64(uint64(m)) - 11
	return uint32(l<<10) + uint32(m>>l)
}

// floatKey maps times to 15 bits, ascending.
func floatKey(x float64) uint32 {
	u := math.Float32bits(float32(x))
	if u>>31 != 0 {
		u = ^u
	} else {
		u |= 1 << 31
	}
	return u >> 17
}

const (
	keyShift = 12 // index below, key above: MaxMessages is 1<<12
	digit    = 5  // 15 bits of key in three passes of 32 counters
)

// sortKeys sorts words of key<<keyShift | index by key, keeping equal ones in
// order. tmp is as long as w. Small and sorted inputs, the usual ones, take the
// short way.
func sortKeys(w, tmp []uint32) {
	inversions := 0
	for i := 1; i < len(w); i++ {
		if w[i] < w[i-1] {
			inversions++
		}
	}
	if inversions == 0 {
		return
	}
	if len(w) <= 16 {
		for i := 1; i < len(w); i++ {
			x, j := w[i], i
			for ; j > 0 && w[j-1] > x; j-- {
				w[j] = w[j-1]
			}
			w[j] = x
		}
		return
	}
	var count [3][1 << digit]uint32
	for _, x := range w {
		count[0][x>>keyShift&(1<<digit-1)]++
		count[1][x>>(keyShift+digit)&(1<<digit-1)]++
		count[2][x>>(keyShift+2*digit)&(1<<digit-1)]++
	}
	src, dst := w, tmp[:len(w)]
	for pass := range count {
		c := &count[pass]
		at := uint32(0)
		for i, n := range c {
			c[i] = at
			at += n
		}
		for _, x := range src {
			d := x >> (keyShift + pass*digit) & (1<<digit - 1)
			dst[c[d]] = x
			c[d]++
		}
		src, dst = dst, src
	}
	copy(w, tmp) // three passes end in tmp
}

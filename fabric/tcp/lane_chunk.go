//go:build linux || darwin || freebsd

package tcp

// wholeSegments is the most bytes up to n that fill segments of mss bytes. The
// kernel sends the rest of a write behind its last full segment as a segment
// of its own, with all the costs of a full one: on loopback 65536 bytes leave as
// 65483 and 53, and a bare socket moves 64 KiB writes at 5.0 GB/s, but writes of
// 65483 bytes at 8.1.
func wholeSegments(n, mss int) int {
	if mss <= 0 || mss > n {
		return n
	}
	return n / mss * mss
}

// tuner finds out, by the first large transfers of an endpoint, how much a lane's
// send should hand over: more per call costs less per byte, less per call lets
// waits on the first connection end sooner. It tries the sizes in turns
// and settles on the one that takes the least time per byte, the smallest of equals.
// A send's time is all that passes since the one before, so that what the owner of
// the link does in between counts; waiting for room or for work does not, as the
// least of several times holds.
type tuner struct {
	cost  [numChunks]uint64 // least ticks for 2^20 bytes; 0: none yet
	last  int64             // when the last send had returned, ticks
	tries uint32
	which uint8 // once settled
}

const (
	numChunks = 4
	minChunk  = maxAccess >> (numChunks - 1) // 128 KiB

	// tuneTries is how many sends are tried: each size a dozen times, 25 MiB in all.
	tuneTries = 12 * numChunks
)

func (t *tuner) settled() bool { return t.tries >= tuneTries }

// size is what the next send hands over, in whole segments.
func (t *tuner) size(mss int) int {
	i := t.which
	if !t.settled() {
		i = uint8(t.tries % numChunks)
	}
	return wholeSegments(minChunk<<i, mss)
}

// tried tells that a send has returned at now that was to be size bytes, had
// total and sent n of them. One that found less, or no room, was tried in vain.
func (t *tuner) tried(size, total, n int, now int64) {
	i := t.tries % numChunks
	ticks, first := now-t.last, t.last == 0
	t.last = now
	if first {
		return
	}
	t.tries++
	if c := uint64(max(ticks, 1)) << 20 / uint64(max(n, 1)); n == total && total > size-size/8 && (t.cost[i] == 0 || c < t.cost[i]) {
		t.cost[i] = c
	}
	if t.settled() {
		t.settle()
	}
}

func (t *tuner) settle() {
	t.which = numChunks / 2 // if nothing was large enough to tell
	best := ^uint64(0)
	for i, c := range t.cost {
		if c != 0 && c < best {
			best, t.which = c, uint8(i)
		}
	}
}

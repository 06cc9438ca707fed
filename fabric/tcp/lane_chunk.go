//go:build linux || darwin || freebsd

package tcp

// wholeSegments returns the largest number of bytes up to n that fill segments of mss
// bytes. The kernel sends the rest of a write after its last full segment as a separate
// segment, with all the costs of a full one: on loopback 65536 bytes leave as 65483 and 53,
// and a bare socket moves 64 KiB writes at 5.0 GB/s, but writes of 65483 bytes at 8.1.
func wholeSegments(n, mss int) int {
	if mss <= 0 || mss > n {
		return n
	}
	return n / mss * mss
}

// withRest returns the size of a send of up to chunk bytes that has all bytes to be sent: all of
// them if what is left behind it would not fill a segment. Headers make transfers of round
// sizes such: their last 32 bytes would cost a send, a segment and a receive.
func withRest(chunk int, all uint64, mss int) int {
	if all > uint64(chunk) && all-uint64(chunk) < uint64(max(mss, leastSegment)) {
		return int(all)
	}
	return chunk
}

// leastSegment is the size of a segment if it is not known.
const leastSegment = 1024

// tuner finds the best size of a lane's sends, using the first large transfers of an
// endpoint. Larger sends cost less per byte; after smaller ones waits on the first
// connection end sooner. It tries the sizes in turn and chooses the one with the least time
// per byte, the smallest of equals. The time of a send is the time since the previous one,
// so that work of the link's owner in between counts. Waiting for room or for work does not
// count, because the least of several times is used.
type tuner struct {
	cost  [numChunks]uint64 // least ticks per 2^20 bytes; 0: none yet
	last  int64             // when the last send had returned, ticks
	tries uint32
	which uint8 // the chosen size, at the end
}

const (
	numChunks = 4
	minChunk  = maxAccess >> (numChunks - 1) // 128 KiB

	// tuneTries is the number of sends that are tried: each size a dozen times, 25 MiB in
	// total.
	tuneTries = 12 * numChunks
)

func (t *tuner) settled() bool { return t.tries >= tuneTries }

// size returns the size of the next send, in whole segments.
func (t *tuner) size(mss int) int {
	i := t.which
	if !t.settled() {
		i = uint8(t.tries % numChunks)
	}
	return wholeSegments(minChunk<<i, mss)
}

// tried records that a send of up to size bytes has returned at now: it had total bytes and
// sent n of them. A send with less data or room is not a sample.
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
	t.which = numChunks / 2 // if no send was a sample
	best := ^uint64(0)
	for i, c := range t.cost {
		if c != 0 && c < best {
			best, t.which = c, uint8(i)
		}
	}
}

package rdv

import "sync/atomic"

// leastSlice is the least size of a slice in bytes: copying it takes some 5 to 15 µs, against
// some 0.3 µs for the claim, the request and the poll.
const leastSlice = 128 << 10

// leastShared is the size in bytes from which a message has several slices.
const leastShared = 2 * leastSlice

// slicing divides a message into n slices, all of size bytes but the last.
type slicing struct {
	total, size uint32
	n           int
}

// slice divides a message of total bytes, which both ends do alike.
func slice(total uint32) slicing {
	n := uint64(min(max(total/leastSlice, 1), claimMask))
	size := (uint64(total) + n - 1) / n
	if n > 1 {
		size = (size + pageSize - 1) / pageSize * pageSize
		n = (uint64(total) + size - 1) / size
	}
	return slicing{total, uint32(size), int(n)}
}

// at returns the offset and length of slice i.
func (s slicing) at(i int) (off, n uint32) {
	off = uint32(i) * s.size
	return off, min(s.size, s.total-off)
}

// A claim word has the id of the transfer or advert in its low half and three counts above:
// slices that the receiver has claimed, from the front; slices that the sender has claimed,
// from the back; slices that are copied. Either end changes it by compare-and-swap alone, and
// only adds to its own count or to the last one. Both begin at an id without counts. Ids of
// transfers and of adverts are numbered by different sides, so a bit tells them apart: a sender
// that has not heard yet of the end of its transfer may find the word in use for an advert.
const (
	claimBits   = 10
	claimMask   = 1<<claimBits - 1
	frontShift  = 32
	backShift   = frontShift + claimBits
	copiedShift = backShift + claimBits
	claimAdvert = 1 << 62
	claimCounts = 1<<(3*claimBits) - 1 // of a word shifted by frontShift
)

// claimant is one end of a transfer as its claim word counts it. All decisions about memory
// follow from this end's own counts: a peer that stores something else into the word decides
// which end copies a slice, and nothing more.
type claimant struct {
	id   ID
	name uint64 // the word without its counts
	n    int    // slices
	back bool   // this end is the sender

	claimed, copied int // slices of this end
	theirs, placed  int // slices of the other end that it had claimed, and copied, when the word was last read
}

// claimName returns the claim word of a transfer or advert without counts.
func claimName(id ID, advert bool) uint64 {
	if advert {
		return uint64(id) | claimAdvert
	}
	return uint64(id)
}

// nameOf returns a claim word without its counts.
func nameOf(word uint64) uint64 { return word &^ (claimCounts << frontShift) }

// read reads the word, and reports whether it is as the rules allow.
func (c *claimant) read(word uint64) bool {
	mine, theirs := int(word>>frontShift&claimMask), int(word>>backShift&claimMask)
	if c.back {
		mine, theirs = theirs, mine
	}
	placed := int(word>>copiedShift&claimMask) - c.copied
	if nameOf(word) != c.name || mine != c.claimed ||
		theirs < c.theirs || mine+theirs > c.n || placed < c.placed || placed > theirs {
		return false
	}
	c.theirs, c.placed = theirs, placed
	return true
}

// complete reports whether all slices were copied when the word was last read.
func (c *claimant) complete() bool { return c.copied+c.placed == c.n }

// owned reports whether this end has claimed a slice that it has not counted as copied.
func (c *claimant) owned() bool { return c.claimed != c.copied }

// Results of claimant.claim and claimant.count.
type claimResult uint8

const (
	claimDone  claimResult = iota
	claimNone              // nothing is left to claim
	claimAgain             // the other end changes the word all the time
	claimBad               // the other end violates the rules
)

// claimTries bounds the attempts of one call: the other end changes the word twice a slice.
const claimTries = 16

// claim claims the next slice for this end.
func (c *claimant) claim(word *atomic.Uint64) (i int, r claimResult) {
	for range claimTries {
		w := word.Load()
		switch {
		case !c.read(w) && c.back && nameOf(w) != c.name:
			return 0, claimNone // the receiver has ended the use of the word
		case !c.read(w):
			return 0, claimBad
		case c.claimed+c.theirs == c.n:
			return 0, claimNone
		}
		if i, step := c.next(); word.CompareAndSwap(w, w+step) {
			c.claimed++
			return i, claimDone
		}
	}
	return 0, claimAgain
}

// next returns the slice that this end claims next, and what that adds to the word.
func (c *claimant) next() (i int, step uint64) {
	if c.back {
		return c.n - 1 - c.claimed, 1 << backShift
	}
	return c.claimed, 1 << frontShift
}

// count counts the slice that this end has claimed as copied. last: it is the last of all.
func (c *claimant) count(word *atomic.Uint64) (last bool, r claimResult) {
	for range claimTries {
		w := word.Load()
		if !c.read(w) {
			return false, claimBad
		}
		if word.CompareAndSwap(w, w+1<<copiedShift) {
			c.copied++
			return c.complete(), claimDone
		}
	}
	return false, claimAgain
}

// retreat claims all that is left, so that the other end begins no further slice, and reports
// whether it is copying none.
func (c *claimant) retreat(word *atomic.Uint64) bool {
	for range claimTries {
		w := word.Load()
		if !c.read(w) {
			return false
		}
		left := c.n - c.claimed - c.theirs
		if _, step := c.next(); word.CompareAndSwap(w, w+uint64(left)*step) {
			c.claimed += left
			return c.theirs == c.placed
		}
	}
	return false
}

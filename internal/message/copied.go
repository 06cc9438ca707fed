package message

import (
	"math/bits"
	"sync"
)

// copied is the copy of a message that no receive has matched. Large ones are used again, by
// all channels: to allocate, clear and collect 64 KiB takes longer than to copy them twice.
type copied struct{ bytes []byte }

// Copies from minKept to maxKept bytes are kept, with room for a power of two. Smaller ones
// are cheap, and larger ones do not come through a ring.
const minKept, maxKept = 4 << 10, 1 << 20

// kept are copies that are free, by the logarithm of their room. The collector takes those
// that are not used for a while.
var kept [21]sync.Pool

// newCopied returns a copy of size bytes with any content.
func newCopied(size int) *copied {
	if size < minKept || size > maxKept {
		return &copied{make([]byte, size)}
	}
	class := bits.Len(uint(size - 1))
	if c, _ := kept[class].Get().(*copied); c != nil {
		c.bytes = c.bytes[:size]
		return c
	}
	return &copied{make([]byte, size, 1<<class)}
}

// release gives c up.
func (c *copied) release() {
	if n := cap(c.bytes); n >= minKept && n <= maxKept {
		kept[bits.Len(uint(n-1))].Put(c)
	}
}

package rmanet

import "sync"

// block is memory of this package with bytes of a stream, outgoing or received for its
// reader. Write copies the application's data to blocks, so the application may reuse its
// memory when Write returns, whatever the peer does.
type block struct {
	buf    []byte // len: bytes in it, or arriving
	off    int    // read up to here
	c      *Conn
	next   *block // in a queue
	prev   *block
	ready  bool  // incoming: the bytes are there
	failed bool  // they have not arrived and will not
	void   bool  // they will not be read
	kept   bool  // goes to blocks when freed
	cell   *cell // holds its memory; nil: buf is its own
	sent   func(error)
}

const (
	// smallBlock is the size of the smallest block; smaller pieces that arrive are joined.
	smallBlock = 1 << 10

	// inBlock is the size of the blocks that collect small incoming messages. A larger one
	// would be idle memory of every connection with a byte to read; a smaller one would not
	// hold the data that arrives while a reader wakes up.
	inBlock = 16 << 10

	// classes is the number of sizes of blocks that are kept for reuse, smallBlock << 0 …
	// classes-1. Reused memory is still registered when data is fetched from or to it.
	classes = 12
)

var blocks [classes]sync.Pool

// class returns the smallest class of blocks with room for n bytes; classes if there is
// none.
func class(n int) int {
	i := 0
	for i < classes && smallBlock<<i < n {
		i++
	}
	return i
}

// newBlock returns a block with room for n bytes, less than 2n if n is at least smallBlock.
func newBlock(c *Conn, n int) *block {
	i := class(n)
	if i == classes {
		return (&block{buf: make([]byte, 0, n)}).of(c)
	}
	b, _ := blocks[i].Get().(*block)
	if b == nil {
		b = &block{buf: make([]byte, 0, smallBlock<<i), kept: true}
	}
	return b.of(c)
}

func (b *block) of(c *Conn) *block {
	b.c = c
	if b.sent == nil {
		b.sent = b.through
	}
	return b
}

// headers are blocks without memory of their own.
var headers = sync.Pool{New: func() any { return new(block) }}

// newOut returns a block for n bytes, at most cellSize, that are sent as one message. The
// caller must fill it at once and then call filled.
func newOut(c *Conn, n int) *block {
	x := c.s.n.slabs.get()
	if x == nil {
		return newBlock(c, n)
	}
	b := headers.Get().(*block)
	b.cell, b.buf = x, x.mem
	return b.of(c)
}

// filled marks a block of newOut as filled.
func (b *block) filled() {
	if b.cell != nil {
		b.c.s.n.slabs.full()
	}
}

// send passes the block to the engine.
func (b *block) send() {
	p, x := b.c.s.peer, b.cell
	if x == nil {
		p.SendFunc(b.c.tag, b.buf, b.sent)
		return
	}
	p.SendBuffer(b.c.tag, x.slab.region.Slice(x.off, len(b.buf))).Then(b.sent)
}

// free releases the memory.
func (b *block) free() {
	if x := b.cell; x != nil {
		n := b.c.s.n
		*b = block{sent: b.sent}
		headers.Put(b)
		n.slabs.put(x)
		return
	}
	if !b.kept {
		return
	}
	b.c, b.next, b.prev, b.buf, b.off = nil, nil, nil, b.buf[:0], 0
	b.ready, b.failed, b.void = false, false, false
	blocks[class(cap(b.buf))].Put(b)
}

// room returns how many more bytes fit.
func (b *block) room() int { return cap(b.buf) - len(b.buf) }

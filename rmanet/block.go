package rmanet

import "sync"

// block is memory of this package with bytes of a stream: on their way out, or here
// for its reader. What the application hands over is copied to blocks, and so is its
// own again when Write returns, whatever the peer does.
type block struct {
	buf    []byte // len: what is in it, or arrives
	off    int    // read up to here
	c      *Conn
	next   *block // in a queue
	prev   *block
	ready  bool  // incoming: the bytes are there
	failed bool  // they will not come
	void   bool  // nobody is going to read them
	kept   bool  // used again
	cell   *cell // its memory is there
	sent   func(error)
}

const (
	// smallBlock is the least memory that is taken: what arrives in pieces that are
	// smaller still is put together.
	smallBlock = 1 << 10

	// inBlock is what small messages that arrive are collected in: larger would be
	// idle memory of every connection with a byte to read, smaller would not hold
	// what comes while a reader wakes up.
	inBlock = 16 << 10

	// classes is how many sizes of blocks are kept, smallBlock << 0 … classes-1.
	// Memory that is used again is registered already when something is fetched
	// from or to it.
	classes = 12
)

var blocks [classes]sync.Pool

// class is the kind of block that has room for n bytes; classes if none has.
func class(n int) int {
	i := 0
	for i < classes && smallBlock<<i < n {
		i++
	}
	return i
}

// newBlock has room for n bytes, and no more than twice that above smallBlock.
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

// newOut has room for n bytes, at most cellSize, that go out by themselves. They must be
// filled in at once.
func newOut(c *Conn, n int) *block {
	x := c.s.n.slabs.get()
	if x == nil {
		return newBlock(c, n)
	}
	b := headers.Get().(*block)
	b.cell, b.buf = x, x.mem
	return b.of(c)
}

// filled says that a block of newOut has its bytes.
func (b *block) filled() {
	if b.cell != nil {
		b.c.s.n.slabs.full()
	}
}

// send hands the block to the engine.
func (b *block) send() {
	p, x := b.c.s.peer, b.cell
	if x == nil {
		p.SendFunc(b.c.tag, b.buf, b.sent)
		return
	}
	p.SendBuffer(b.c.tag, x.slab.region.Slice(x.off, len(b.buf))).Then(b.sent)
}

// free gives the memory back.
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

// room is how many bytes fit behind those that are there.
func (b *block) room() int { return cap(b.buf) - len(b.buf) }

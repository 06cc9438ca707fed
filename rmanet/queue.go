package rmanet

import "sync"

// smallChunk is the memory that small messages are collected in: larger would be
// idle memory of every connection with a byte to read, smaller would not hold what
// comes while a reader wakes up.
const smallChunk = 16 << 10

// chunk is a piece of what has arrived, in order.
type chunk struct {
	buf   []byte // len: what has arrived, or arrives
	off   int    // read up to here
	ready bool   // the bytes are there
	kept  bool   // used again
	void  bool   // nobody is going to read it
	c     *Conn
	next  *chunk
}

// classes is how many sizes of chunks are kept: smallChunk << 0 … classes-1. Memory
// that is used again is registered already when something is fetched to it.
const classes = 8

var chunks [classes]sync.Pool

// class is the kind of chunk that has room for n bytes; classes if none has.
func class(n int) int {
	i := 0
	for i < classes && smallChunk<<i < n {
		i++
	}
	return i
}

// newChunk has room for n bytes, and no more than twice that above smallChunk.
func newChunk(c *Conn, n int) *chunk {
	i := class(n)
	if i == classes {
		return &chunk{c: c, buf: make([]byte, 0, n)}
	}
	k, _ := chunks[i].Get().(*chunk)
	if k == nil {
		k = &chunk{buf: make([]byte, 0, smallChunk<<i), kept: true}
	}
	k.c, k.buf, k.off, k.ready, k.void, k.next = c, k.buf[:0], 0, false, false, nil
	return k
}

func (k *chunk) free() {
	if k.kept {
		k.c, k.next = nil, nil
		chunks[class(cap(k.buf))].Put(k)
	}
}

// queue is what a reader has not read yet.
type queue struct{ head, tail *chunk }

func (q *queue) push(k *chunk) {
	if q.tail == nil {
		q.head = k
	} else {
		q.tail.next = k
	}
	q.tail = k
}

// add appends a copy of b.
func (q *queue) add(c *Conn, b []byte) {
	if t := q.tail; t != nil && t.ready {
		n := min(len(b), cap(t.buf)-len(t.buf))
		t.buf = append(t.buf, b[:n]...)
		b = b[n:]
	}
	for len(b) > 0 {
		k := newChunk(c, min(len(b), smallChunk))
		n := min(len(b), cap(k.buf))
		k.buf, k.ready = append(k.buf, b[:n]...), true
		b = b[n:]
		q.push(k)
	}
}

// take returns the first chunk if it is there: the caller's from now on.
func (q *queue) take() *chunk {
	k := q.head
	if k == nil || !k.ready {
		return nil
	}
	if q.head = k.next; q.head == nil {
		q.tail = nil
	}
	return k
}

// clear drops all that nothing arrives in any more.
func (q *queue) clear() {
	for k := q.head; k != nil; {
		next := k.next
		if k.ready {
			k.free()
		} else {
			k.void = true // it is freed when it has arrived
		}
		k = next
	}
	q.head, q.tail = nil, nil
}

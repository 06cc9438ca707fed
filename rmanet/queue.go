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
	small bool   // from the pool
	void  bool   // nobody is going to read it
	c     *Conn
	next  *chunk
}

var chunks = sync.Pool{New: func() any { return &chunk{buf: make([]byte, 0, smallChunk), small: true} }}

// newChunk has room for n bytes.
func newChunk(c *Conn, n int) *chunk {
	if n <= smallChunk {
		k := chunks.Get().(*chunk)
		k.c, k.buf, k.off, k.ready, k.void, k.next = c, k.buf[:0], 0, false, false, nil
		return k
	}
	return &chunk{c: c, buf: make([]byte, 0, n)}
}

func (k *chunk) free() {
	if k.small {
		k.c, k.next = nil, nil
		chunks.Put(k)
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

package rmanet

// queue is a list of blocks in the order of the stream.
type queue struct {
	head, tail *block
	n          int
}

func (q *queue) push(b *block) {
	q.n++
	if b.prev = q.tail; b.prev == nil {
		q.head = b
	} else {
		b.prev.next = b
	}
	q.tail = b
}

func (q *queue) remove(b *block) {
	q.n--
	if b.prev == nil {
		q.head = b.next
	} else {
		b.prev.next = b.next
	}
	if b.next == nil {
		q.tail = b.prev
	} else {
		b.next.prev = b.prev
	}
	b.next, b.prev = nil, nil
}

// add appends a copy of p.
func (q *queue) add(c *Conn, p []byte) {
	if t := q.tail; t != nil && t.ready {
		n := min(len(p), t.room())
		t.buf = append(t.buf, p[:n]...)
		p = p[n:]
	}
	for len(p) > 0 {
		b := c.s.take(c, inBlock)
		n := min(len(p), inBlock)
		b.buf, b.ready = append(b.buf, p[:n]...), true
		p = p[n:]
		q.push(b)
	}
}

// join merges b, which has arrived, with its neighbours if they fit, so that many small
// messages do not hold a block each.
func (q *queue) join(b *block) {
	if p := b.prev; p != nil && p.ready && len(b.buf) <= p.room() {
		q.append(p, b)
		b = p
	}
	if n := b.next; n != nil && n.ready && len(n.buf) <= b.room() {
		q.append(b, n)
	}
}

// append moves the bytes of b to the end of a, the block before it.
func (q *queue) append(a, b *block) {
	a.buf = append(a.buf, b.buf...)
	q.remove(b)
	b.c.s.give(b)
}

// take removes the first block and returns it, if its bytes have arrived.
func (q *queue) take() *block {
	b := q.head
	if b == nil || !b.ready {
		return nil
	}
	q.remove(b)
	return b
}

// clear drops all blocks and returns the number of their bytes. Blocks with bytes still
// arriving are released on arrival, and counted then.
func (q *queue) clear() (n int) {
	for b := q.head; b != nil; b = q.head {
		q.remove(b)
		if b.ready || b.failed {
			n += len(b.buf)
			b.c.s.give(b)
		} else {
			b.void = true // released when it has arrived
		}
	}
	return n
}

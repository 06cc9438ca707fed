package softlink

import "github.com/seed33544411/rma/fabric"

// CompQ is a FIFO of completions for one owner. It grows in Reserve, never in
// Push: reserve a place when a request is taken and Push never fails.
type CompQ struct {
	buf  []fabric.Completion // length a power of two
	head uint64              // next to pop
	tail uint64              // next to push
	need int                 // places reserved in all
}

// Reserve adds n places to the queue's capacity; negative gives them back.
func (q *CompQ) Reserve(n int) {
	q.need += n
	size := 64
	for size < q.need {
		size *= 2
	}
	if size <= len(q.buf) {
		return
	}
	buf := make([]fabric.Completion, size)
	k := uint64(0)
	for i := q.head; i != q.tail; i++ {
		buf[k] = q.buf[i&uint64(len(q.buf)-1)]
		k++
	}
	q.buf, q.head, q.tail = buf, 0, k
}

// Len returns the completions waiting.
func (q *CompQ) Len() int { return int(q.tail - q.head) }

// Free returns how many more Push calls succeed now.
func (q *CompQ) Free() int { return len(q.buf) - q.Len() }

// Push appends c. It reports false if the queue is full.
func (q *CompQ) Push(c fabric.Completion) bool {
	if q.Free() == 0 {
		return false
	}
	q.buf[q.tail&uint64(len(q.buf)-1)] = c
	q.tail++
	return true
}

// Pop moves up to len(cs) completions to cs and returns how many.
func (q *CompQ) Pop(cs []fabric.Completion) int {
	n := 0
	for n < len(cs) && q.head != q.tail {
		cs[n] = q.buf[q.head&uint64(len(q.buf)-1)]
		q.head++
		n++
	}
	return n
}

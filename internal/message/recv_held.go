package message

import "github.com/seed33544411/rma/rdv"

// announced is a message that the peer has announced and that waits for its
// turn, or for a receive.
type announced struct {
	seq    uint64
	tag    uint32
	size   uint32
	handle rdv.Handle
}

// heldQueue holds announced messages that wait for their turn, by rising
// number. It is bounded by what rdv lets a peer have outstanding.
type heldQueue struct {
	buf   []announced
	first int
}

func (q *heldQueue) len() int { return len(q.buf) - q.first }

func (q *heldQueue) head() *announced { return &q.buf[q.first] }

func (q *heldQueue) push(a announced) {
	if q.first > 0 && q.first == len(q.buf) {
		q.buf, q.first = q.buf[:0], 0
	}
	q.buf = append(q.buf, a)
}

func (q *heldQueue) pop() announced {
	a := q.buf[q.first]
	if q.first++; q.first == len(q.buf) {
		q.buf, q.first = q.buf[:0], 0
	}
	return a
}

package rdv

// fifo is a queue that keeps the room it has grown to.
type fifo[T any] struct {
	q       []T
	head, n int
}

func (q *fifo[T]) push(x T) {
	if q.n == len(q.q) {
		grown := make([]T, max(2*q.n, 16))
		n := copy(grown, q.q[q.head:])
		copy(grown[n:], q.q[:q.head])
		q.q, q.head = grown, 0
	}
	q.q[(q.head+q.n)%len(q.q)] = x
	q.n++
}

func (q *fifo[T]) first() T { return q.q[q.head] }

func (q *fifo[T]) pop() T {
	x := q.first()
	q.head = (q.head + 1) % len(q.q)
	q.n--
	return x
}

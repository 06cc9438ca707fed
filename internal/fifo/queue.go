package fifo

// Queue is a FIFO that grows when it is full, and never shrinks. The zero value is empty
// and ready.
type Queue[T any] struct{ Ring[T] }

// Push appends v.
func (q *Queue[T]) Push(v T) {
	if q.n == len(q.q) {
		grown := make([]T, max(2*len(q.q), 64))
		for i := range q.n {
			grown[i] = q.q[q.at(i)]
		}
		q.q, q.head = grown, 0
	}
	q.Ring.Push(v)
}

// Back is the newest value, in place. It panics if there is none.
func (q *Queue[T]) Back() *T {
	if q.n == 0 {
		panic("fifo: queue is empty")
	}
	return &q.q[q.at(q.n-1)]
}

package fifo

// Queue is a FIFO that grows when it is full, and never shrinks. The zero value is empty
// and ready.
type Queue[T any] struct{ Ring[T] }

// Push appends v.
func (q *Queue[T]) Push(v T) {
	if q.n == q.most {
		q.most = max(2*q.most, 64)
	}
	q.Ring.Push(v)
}

// Insert puts v before all of the newest values for which after is true.
func (q *Queue[T]) Insert(v T, after func(x *T) bool) {
	q.Push(v)
	for i := q.n - 1; i > 0; i-- {
		x, y := &q.q[q.at(i-1)], &q.q[q.at(i)]
		if !after(x) {
			break
		}
		*x, *y = *y, *x
	}
}

// Package fifo has the queues of the data path: first in, first out, without locks, and
// without allocation except to grow.
//
//   - A [Ring] holds values in a bounded number of places, allocated as they are needed:
//     for numbers bounded by agreement, where one more would be a bug.
//   - A [Queue] is a ring without bound: for numbers bounded elsewhere.
//
// Operations in flight, messages and receives hold their own links, in lists of their own
// packages: a generic list would access the link by a call that is not inlined, and
// two pushes and pops take 60 ns by it instead of 5.
//
// A queue belongs to one goroutine at a time. The package imports nothing of the module.
package fifo

import "iter"

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

// Insert inserts v before the newest values, as far as after is true for them.
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

// Ring is a FIFO of fixed capacity, whose places are allocated as they are needed and kept.
// The zero value has none: see NewRing.
type Ring[T any] struct {
	q       []T
	head, n int
	most    int
}

// NewRing returns an empty Ring for up to capacity values.
func NewRing[T any](capacity int) Ring[T] { return Ring[T]{most: capacity} }

// Len returns the number of values in the ring.
func (r *Ring[T]) Len() int { return r.n }

// Push appends v. It panics if the ring is full.
func (r *Ring[T]) Push(v T) {
	if r.n == len(r.q) {
		r.grow()
	}
	r.q[r.at(r.n)] = v
	r.n++
}

// grow adds places.
func (r *Ring[T]) grow() {
	if r.n == r.most {
		panic("fifo: push to a full ring")
	}
	q := make([]T, min(max(2*r.n, 16), r.most))
	copy(q[copy(q, r.q[r.head:]):], r.q[:r.head])
	r.q, r.head = q, 0
}

// Front returns a pointer to the oldest value in the ring. It panics if the ring is empty.
func (r *Ring[T]) Front() *T {
	if r.n == 0 {
		panic("fifo: pop of an empty ring")
	}
	return &r.q[r.head]
}

// Pop removes and returns the oldest value. It panics if the ring is empty.
func (r *Ring[T]) Pop() (v T) {
	p := r.Front()
	v, *p = *p, v
	r.head = r.at(1)
	r.n--
	return v
}

// All returns pointers to all values, the oldest first. The loop must not change the ring.
func (r *Ring[T]) All() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for i := range r.n {
			if !yield(&r.q[r.at(i)]) {
				return
			}
		}
	}
}

// Remove removes the oldest value for which match is true. It returns false if there is none.
func (r *Ring[T]) Remove(match func(x *T) bool) bool {
	for i := range r.n {
		if !match(&r.q[r.at(i)]) {
			continue
		}
		for r.n--; i < r.n; i++ {
			r.q[r.at(i)] = r.q[r.at(i+1)]
		}
		var none T
		r.q[r.at(i)] = none
		return true
	}
	return false
}

// at returns the place of value i, counted from the oldest.
func (r *Ring[T]) at(i int) int {
	if i += r.head; i >= len(r.q) {
		i -= len(r.q)
	}
	return i
}

// Package fifo has the queues of the data path: first in, first out, without
// locks, and without allocation but to grow.
//
//   - A [Ring] holds values in a bounded number of places, made as they are needed: for
//     what is bounded by agreement, where one more would be a bug.
//   - A [Queue] is a ring without bound: for what is bounded elsewhere.
//
// A queue belongs to one goroutine at a time. The package imports nothing.
package fifo

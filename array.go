package rma

import "fmt"

// Array is a Window viewed as numbers of type T: each rank's part is a slice of them, and
// places are given as element indices instead of byte offsets. It is a value; its methods
// may be called from any goroutine.
//
//	a, err := rma.ArrayOf[float64](win)
//	copy(a.Own(), initial)
//	err = a.Put(to, 100, column).Wait(ctx) // its elements from 100 on
type Array[T Number] struct {
	win *Window
	own []T
}

// ArrayOf returns the window as numbers of this machine's byte order, which all ranks must
// share. Bytes of a rank's part behind its last whole element do not belong to the array.
// The error wraps ErrAlign where this rank's part, which WindowOf was given, does not lie
// on a multiple of the number's alignment.
func ArrayOf[T Number](w *Window) (Array[T], error) {
	n := len(w.Bytes()) / sizeOf[T]()
	own, err := View[T](w.Slice(0, n*sizeOf[T]()))
	if err != nil {
		return Array[T]{}, fmt.Errorf("rma: array: %w", err)
	}
	return Array[T]{w, own}, nil
}

// Window returns the window.
func (a Array[T]) Window() *Window { return a.win }

// Own returns this rank's part: memory that peers reach, not to be used after Window.Free.
func (a Array[T]) Own() []T { return a.own }

// Len returns how many elements the rank's part has.
func (a Array[T]) Len(rank int) int {
	return a.win.Len(rank) / sizeOf[T]()
}

// At returns the place of element i of the rank's part, for Accumulate and Fetch. A place
// outside it is refused by the operation that it is given to. It panics if there is no
// such rank.
func (a Array[T]) At(rank, i int) Remote {
	off := -1 // ErrBounds, also of 0 elements
	if i >= 0 && i <= a.Len(rank) {
		off = i * sizeOf[T]()
	}
	return a.win.At(rank, off)
}

// Slice names the n elements of this rank's part from i on, as Window.Slice does bytes.
func (a Array[T]) Slice(i, n int) Buffer {
	if size := sizeOf[T](); i >= 0 && i <= len(a.own) && n >= 0 && n <= len(a.own)-i {
		return a.win.Slice(size*i, size*n)
	}
	return a.win.Slice(-1, 1) // ErrBounds
}

// Put copies src to the rank's elements from i on. A slice of Own is put from where it is,
// as by Peer.Put; other memory as by Peer.PutBytes. Until the request is complete src belongs
// to the engine.
func (a Array[T]) Put(rank, i int, src []T) Request {
	p := a.win.eng.Peer(rank)
	if at, ok := within(a.own, src); ok {
		return p.Put(a.At(rank, i), a.Slice(at, len(src)))
	}
	return p.PutBytes(a.At(rank, i), Bytes(src))
}

// Get copies the rank's elements from i on to dst, as many as dst holds. As Put.
func (a Array[T]) Get(dst []T, rank, i int) Request {
	p := a.win.eng.Peer(rank)
	if at, ok := within(a.own, dst); ok {
		return p.Get(a.Slice(at, len(dst)), a.At(rank, i))
	}
	return p.GetBytes(Bytes(dst), a.At(rank, i))
}

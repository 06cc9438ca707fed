package rma

import "fmt"

// Array is a view of a Window as elements of type T: each rank's part is a slice of them,
// and elements are addressed by index instead of byte offset. It is a value; its methods
// may be called from any goroutine.
//
//	a, err := rma.ArrayOf[float64](win)
//	copy(a.Own(), initial)
//	err = a.Put(to, 100, column).Wait(ctx) // the elements of rank to from 100 on
type Array[T Number] struct {
	win *Window
	own []T
}

// ArrayOf returns a view of the window as numbers in this machine's byte order, which must
// be that of all ranks. Bytes at the end of a part that do not fill an element are not in
// the array. The error wraps ErrAlign if this rank passed memory to WindowOf that is not
// aligned for T.
func ArrayOf[T Number](w *Window) (Array[T], error) {
	if w == nil {
		return Array[T]{}, fmt.Errorf("rma: array: %w: no window", ErrInvalid)
	}
	n := len(w.Bytes()) / sizeOf[T]()
	own, err := View[T](w.Slice(0, n*sizeOf[T]()))
	if err != nil {
		return Array[T]{}, fmt.Errorf("rma: array: %w", err)
	}
	return Array[T]{w, own}, nil
}

// Window returns the window.
func (a Array[T]) Window() *Window { return a.win }

// Own returns this rank's part. Peers access this memory. It must not be used after
// Window.Free.
func (a Array[T]) Own() []T { return a.own }

// Len returns the number of elements in the rank's part. It panics if there is no such
// rank.
func (a Array[T]) Len(rank int) int {
	return a.win.Len(rank) / sizeOf[T]()
}

// At returns the location of element i of the rank's part, for operations such as
// Accumulate and Fetch. An operation refuses a location outside the part (ErrBounds). At
// panics if there is no such rank.
func (a Array[T]) At(rank, i int) Remote {
	off := -1 // ErrBounds, also of 0 elements
	if i >= 0 && i <= a.Len(rank) {
		off = i * sizeOf[T]()
	}
	return a.win.At(rank, off)
}

// Slice returns the n elements of this rank's part from element i on, as the local side of
// an operation. An operation refuses a slice that exceeds the part (ErrBounds).
func (a Array[T]) Slice(i, n int) Buffer {
	if size := sizeOf[T](); i >= 0 && i <= len(a.own) && n >= 0 && n <= len(a.own)-i {
		return a.win.Slice(size*i, size*n)
	}
	return a.win.Slice(-1, 1) // ErrBounds
}

// Put copies src to the rank's elements from i on. If src is a slice of Own, it is put
// without copying, as by Peer.Put; other memory is put as by Peer.PutBytes. Until the
// request is complete src belongs to the engine.
func (a Array[T]) Put(rank, i int, src []T) Request {
	p := a.win.Peer(rank)
	if at, ok := within(a.own, src); ok {
		return p.Put(a.At(rank, i), a.Slice(at, len(src)))
	}
	return p.PutBytes(a.At(rank, i), Bytes(src))
}

// Get copies the rank's elements from i on to dst, len(dst) of them. If dst is a slice of
// Own, the data is placed there directly, as by Peer.Get; otherwise as by Peer.GetBytes.
// Until the request is complete dst belongs to the engine.
func (a Array[T]) Get(dst []T, rank, i int) Request {
	p := a.win.Peer(rank)
	if at, ok := within(a.own, dst); ok {
		return p.Get(a.Slice(at, len(dst)), a.At(rank, i))
	}
	return p.GetBytes(Bytes(dst), a.At(rank, i))
}

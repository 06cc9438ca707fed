package coll

import (
	"crypto/subtle"
	"reflect"
	"sync/atomic"

	prog "github.com/seed33544411/rma/internal/progress"
)

// Integer is the set of integers that reductions combine.
type Integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// Ordered is the set of numbers that Min and Max compare.
type Ordered interface {
	Integer | ~float32 | ~float64
}

// Number is the set of numbers that Sum and Prod combine.
type Number interface {
	Ordered | ~complex64 | ~complex128
}

// Bits is the set of types that And, Or and Xor combine bitwise.
type Bits interface {
	Integer | ~bool
}

// Op is a reduction of elements of type T: one of Sum, Prod, Min, Max, And, Or and Xor, or
// the result of Func or FuncInOrder. All ranks pass the same one.
//
//	coll.Allreduce(ctx, t, mine, all, coll.Sum)
type Op[T any] func() Operator[T]

// Operator describes a reduction. Op functions return it.
type Operator[T any] struct {
	code    uint8 // in headers: opFunc for functions of the application
	inOrder bool  // not commutative
	combine func(dst, src []T)
	fold    folding // of built-in ones instead, once it has been made for a kind of elements
}

const (
	opNone uint8 = iota
	opSum
	opProd
	opMin
	opMax
	opAnd
	opOr
	opXor
	opFunc
	opFuncInOrder
	numOps
)

var opNames = [numOps]string{"", "Sum", "Prod", "Min", "Max", "And", "Or", "Xor", "Func", "FuncInOrder"}

// Func returns the reduction by an application's function that is commutative and
// associative. combine sets dst[i] to the combination of dst[i] and src[i] for all i; both
// slices have the same length and do not overlap. It runs on goroutines of the engine and of callers, and
// must not wait for anything. Its panic ends the process.
func Func[T any](combine func(dst, src []T)) Op[T] {
	return func() Operator[T] { return Operator[T]{code: opFunc, combine: combine} }
}

// FuncInOrder is Func for a function that is associative but not commutative: dst[i] is
// the combination of lower ranks, src[i] that of higher ranks.
func FuncInOrder[T any](combine func(dst, src []T)) Op[T] {
	return func() Operator[T] { return Operator[T]{code: opFuncInOrder, inOrder: true, combine: combine} }
}

// Sum adds. Integers wrap around. The order of the additions, and therefore the rounding
// of floating-point sums, depends on the number of ranks and on the algorithm.
func Sum[T Number]() Operator[T] {
	if o, ok := made[T](opSum); ok {
		return o
	}
	return Operator[T]{code: opSum, combine: func(dst, src []T) {
		src = src[:len(dst)]
		for i := range dst {
			dst[i] += src[i]
		}
	}}
}

// Prod multiplies. Overflow and rounding are as for Sum.
func Prod[T Number]() Operator[T] {
	if o, ok := made[T](opProd); ok {
		return o
	}
	return Operator[T]{code: opProd, combine: func(dst, src []T) {
		src = src[:len(dst)]
		for i := range dst {
			dst[i] *= src[i]
		}
	}}
}

// Min returns the smallest number, or NaN if any of the numbers is NaN.
func Min[T Ordered]() Operator[T] {
	if o, ok := made[T](opMin); ok {
		return o
	}
	return Operator[T]{code: opMin, combine: func(dst, src []T) {
		src = src[:len(dst)]
		for i := range dst {
			dst[i] = min(dst[i], src[i])
		}
	}}
}

// Max returns the largest number, or NaN if any of the numbers is NaN.
func Max[T Ordered]() Operator[T] {
	if o, ok := made[T](opMax); ok {
		return o
	}
	return Operator[T]{code: opMax, combine: func(dst, src []T) {
		src = src[:len(dst)]
		for i := range dst {
			dst[i] = max(dst[i], src[i])
		}
	}}
}

// And is the bitwise and; for bool, the logical one.
func And[T Bits]() Operator[T] {
	if o, ok := made[T](opAnd); ok {
		return o
	}
	return Operator[T]{code: opAnd, combine: func(dst, src []T) {
		d, s, rest, with := words(dst, src)
		for i := range d {
			d[i] &= s[i]
		}
		for i := range rest {
			rest[i] &= with[i]
		}
	}}
}

// Or is the bitwise or; for bool, the logical one.
func Or[T Bits]() Operator[T] {
	if o, ok := made[T](opOr); ok {
		return o
	}
	return Operator[T]{code: opOr, combine: func(dst, src []T) {
		d, s, rest, with := words(dst, src)
		for i := range d {
			d[i] |= s[i]
		}
		for i := range rest {
			rest[i] |= with[i]
		}
	}}
}

// Xor is the bitwise exclusive or; for bool, the logical one.
func Xor[T Bits]() Operator[T] {
	if o, ok := made[T](opXor); ok {
		return o
	}
	return Operator[T]{code: opXor, combine: func(dst, src []T) {
		d := bytesOf(dst)
		subtle.XORBytes(d, d, bytesOf(src))
	}}
}

// words returns the memory of two slices of one length as words of 8 bytes, as far as it can
// be used so, and what is left of it.
func words[T any](dst, src []T) (d, s []uint64, rest, with []byte) {
	rest = bytesOf(dst)
	with = bytesOf(src)[:len(rest)]
	dw, ok := elementsOf[uint64](rest)
	sw, too := elementsOf[uint64](with)
	if !ok || !too || len(dw) == 0 {
		return nil, nil, rest, with
	}
	return dw, sw[:len(dw)], rest[8*len(dw):], with[8*len(dw):]
}

// folding is a reduction of memory: dst becomes dst∘src or, with lower, src∘dst. src may be
// unaligned.
type folding func(dst, src []byte, lower bool)

// foldings are the built-in reductions, by kind of element, that were used.
var foldings [opFunc][reflect.Complex128 + 1]atomic.Pointer[folding]

// made returns a built-in reduction that was used before. A new one allocates its function.
func made[T any](code uint8) (o Operator[T], ok bool) {
	e, err := elementOf[T]()
	if err != nil {
		return o, false
	}
	f := foldings[code][e.kind].Load()
	if f == nil {
		return o, false
	}
	return Operator[T]{code: code, fold: *f}, true
}

// foldOf returns the operator as a reduction of memory with elements of a kind. It allocates for
// functions of the application, and once for the others.
func foldOf[T any](o *Operator[T], k reflect.Kind) folding {
	switch {
	case o.fold != nil:
		return o.fold
	case o.code >= opFunc:
		return ofApplication(o.folding())
	}
	f := o.folding()
	foldings[o.code][k].Store(&f)
	return f
}

// ofApplication returns f, which calls a function of the application: its panic ends the process, whoever
// calls f, with the lock of a board or in the middle of a step.
func ofApplication(f folding) folding {
	return func(dst, src []byte, lower bool) {
		defer prog.Crash()
		f(dst, src, lower)
	}
}

// unalignedMax is the size of the pieces in which memory is copied that a reduction cannot
// use where it is.
const unalignedMax = 4096

// folding returns the operator as a reduction of memory.
func (o Operator[T]) folding() folding {
	return func(dst, src []byte, lower bool) {
		if len(dst) == 0 {
			return
		}
		d, ok := elementsOf[T](dst)
		if !ok {
			panic("coll: memory of a reduction is not aligned")
		}
		s, ok := elementsOf[T](src)
		if ok && !(lower && o.inOrder) {
			o.combine(d, s)
			return
		}
		size := len(dst) / len(d)
		s = make([]T, min(len(d), max(1, unalignedMax/size)))
		for len(d) > 0 {
			n := min(len(s), len(d))
			copy(bytesOf(s[:n]), src)
			if lower && o.inOrder {
				o.combine(s[:n], d[:n])
				copy(d, s[:n])
			} else {
				o.combine(d[:n], s[:n])
			}
			d, src = d[n:], src[n*size:]
		}
	}
}

package onesided

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Type is the type of an accumulate's elements. The numbers are those on the wire.
type Type uint8

// Types of elements.
const (
	Int32 Type = iota + 1
	Int64
	Uint32
	Uint64
	Float32
	Float64
)

// Size is the size of an element in bytes, 0 of what is no type.
func (t Type) Size() int {
	switch t {
	case Int32, Uint32, Float32:
		return 4
	case Int64, Uint64, Float64:
		return 8
	}
	return 0
}

// Reduction is how an accumulate combines an element with the target's. The numbers
// are those on the wire.
type Reduction uint8

// Reductions. Integers wrap around; of numbers of which one is NaN the smaller
// and the larger are NaN.
const (
	Sum Reduction = iota
	Min
	Max
	Prod
	Replace
	reductions
)

// String is the name of the reduction.
func (r Reduction) String() string {
	if r < reductions {
		return [...]string{"sum", "min", "max", "prod", "replace"}[r]
	}
	return fmt.Sprintf("reduction(%d)", uint8(r))
}

// Known reports whether there is such a reduction.
func (r Reduction) Known() bool { return r < reductions }

type number interface {
	int32 | int64 | uint32 | uint64 | float32 | float64
}

func combine[T number](r Reduction, a, b T) T {
	switch r {
	case Sum:
		return a + b
	case Min:
		return min(a, b)
	case Max:
		return max(a, b)
	case Prod:
		return a * b
	}
	return b
}

// Reduce combines the elements of src with those of dst, one after the other, each
// atomically. dst must be aligned to the elements' size, both as long as each other
// and a multiple of it. Does not allocate.
func Reduce(r Reduction, t Type, dst, src []byte) {
	switch t {
	case Int32:
		each32(dst, src, func(a, b uint32) uint32 { return uint32(combine(r, int32(a), int32(b))) })
	case Uint32:
		each32(dst, src, func(a, b uint32) uint32 { return combine(r, a, b) })
	case Float32:
		each32(dst, src, func(a, b uint32) uint32 {
			return math.Float32bits(combine(r, math.Float32frombits(a), math.Float32frombits(b)))
		})
	case Int64:
		each64(dst, src, func(a, b uint64) uint64 { return uint64(combine(r, int64(a), int64(b))) })
	case Uint64:
		each64(dst, src, func(a, b uint64) uint64 { return combine(r, a, b) })
	case Float64:
		each64(dst, src, func(a, b uint64) uint64 {
			return math.Float64bits(combine(r, math.Float64frombits(a), math.Float64frombits(b)))
		})
	}
}

func each32(dst, src []byte, f func(a, b uint32) uint32) {
	for i := 0; i+4 <= len(src); i += 4 {
		update32(dst[i:i+4], binary.NativeEndian.Uint32(src[i:]), f)
	}
}

func each64(dst, src []byte, f func(a, b uint64) uint64) {
	for i := 0; i+8 <= len(src); i += 8 {
		update64(dst[i:i+8], binary.NativeEndian.Uint64(src[i:]), f)
	}
}

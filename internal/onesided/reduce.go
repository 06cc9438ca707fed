package onesided

import (
	"encoding/binary"
	"github.com/seed33544411/rma/internal/enum"
	"math"
	"sync/atomic"

	"github.com/seed33544411/rma/fabric"
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

// Size returns the size of an element in bytes, 0 for an invalid type.
func (t Type) Size() int {
	switch t {
	case Int32, Uint32, Float32:
		return 4
	case Int64, Uint64, Float64:
		return 8
	}
	return 0
}

// Reduction is how an accumulate combines an element with the target's. The numbers are
// those on the wire.
type Reduction uint8

// Reductions. Integers wrap around. If one operand is NaN, minimum and maximum are NaN.
const (
	Sum Reduction = iota
	Min
	Max
	Prod
	Replace
	BitAnd // integers only
	BitOr
	BitXor
	reductions
)

// NoOp leaves the target's element as it is: an atomic load, of operations that fetch.
const NoOp = reductions

// Exclusive in a Reduction says that nothing else accesses the elements meanwhile: they are
// combined with plain loads and stores. Only accumulates without a result take it.
const Exclusive Reduction = 1 << 7

var typeNames = []string{Int32: "int32", Int64: "int64", Uint32: "uint32", Uint64: "uint64", Float32: "float32", Float64: "float64"}

// String returns the name of the type.
func (t Type) String() string { return enum.Name("type", typeNames, t) }

var reductionNames = []string{"sum", "min", "max", "prod", "replace", "bitwise and", "bitwise or", "bitwise xor", "no-op"}

// String returns the name of the reduction.
func (r Reduction) String() string {
	if r&Exclusive != 0 {
		return "exclusive " + (r &^ Exclusive).String()
	}
	return enum.Name("reduction", reductionNames, r)
}

// Takes reports whether r is defined for elements of the valid type t.
func (r Reduction) Takes(t Type) bool {
	r &^= Exclusive
	return r < BitAnd || r < reductions && t != Float32 && t != Float64
}

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

// combineBits is combine for elements of type t, given by their bits.
func combineBits(r Reduction, t Type, a, b uint64) uint64 {
	switch r {
	case Replace:
		return b
	case BitAnd:
		return a & b
	case BitOr:
		return a | b
	case BitXor:
		return a ^ b
	case NoOp:
		return a
	}
	switch t {
	case Int32:
		return uint64(uint32(combine(r, int32(a), int32(b))))
	case Uint32:
		return uint64(combine(r, uint32(a), uint32(b)))
	case Float32:
		return uint64(math.Float32bits(combine(r, math.Float32frombits(uint32(a)), math.Float32frombits(uint32(b)))))
	case Int64:
		return uint64(combine(r, int64(a), int64(b)))
	case Uint64:
		return combine(r, a, b)
	}
	return math.Float64bits(combine(r, math.Float64frombits(a), math.Float64frombits(b)))
}

// Reduce combines the elements of src with those of dst, one by one, each atomically unless
// r is Exclusive. dst must be aligned to the elements' size; both must have the same length,
// a multiple of that size. Does not allocate. The type is evaluated once, not for each
// element.
func Reduce(r Reduction, t Type, dst, src []byte) {
	switch integer, long := t < Float32, t.Size() == 8; {
	case r&Exclusive != 0:
		reduceExclusive(r&^Exclusive, t, dst, src)
	case r == Sum && integer && long:
		add64(dst, src)
	case r == Sum && integer:
		each32(dst, src, func(a, b uint32) uint32 { return a + b })
	case r >= BitAnd && long:
		each64(dst, src, func(a, b uint64) uint64 { return combineBits(r, t, a, b) })
	case r >= BitAnd:
		each32(dst, src, func(a, b uint32) uint32 { return uint32(combineBits(r, t, uint64(a), uint64(b))) })
	case t == Int32:
		each32(dst, src, func(a, b uint32) uint32 { return uint32(combine(r, int32(a), int32(b))) })
	case t == Uint32:
		each32(dst, src, func(a, b uint32) uint32 { return combine(r, a, b) })
	case t == Float32:
		each32(dst, src, func(a, b uint32) uint32 {
			return math.Float32bits(combine(r, math.Float32frombits(a), math.Float32frombits(b)))
		})
	case t == Int64:
		each64(dst, src, func(a, b uint64) uint64 { return uint64(combine(r, int64(a), int64(b))) })
	case t == Uint64:
		each64(dst, src, func(a, b uint64) uint64 { return combine(r, a, b) })
	case t == Float64 && r == Sum:
		each64(dst, src, func(a, b uint64) uint64 {
			return math.Float64bits(math.Float64frombits(a) + math.Float64frombits(b))
		})
	case t == Float64:
		each64(dst, src, func(a, b uint64) uint64 {
			return math.Float64bits(combine(r, math.Float64frombits(a), math.Float64frombits(b)))
		})
	}
}

// each32 combines elements of 4 bytes two by two, in the aligned word of 8 that they share: the
// atomic instruction is what an element costs.
func each32(dst, src []byte, f func(a, b uint32) uint32) {
	if fabric.Addr(dst)%8 != 0 {
		one32(dst, func(a uint32) uint32 { return f(a, binary.NativeEndian.Uint32(src)) })
		dst, src = dst[4:], src[4:]
	}
	n := len(src) &^ 7
	each64(dst[:n], src[:n], func(a, b uint64) uint64 {
		return uint64(f(uint32(a), uint32(b))) | uint64(f(uint32(a>>32), uint32(b>>32)))<<32
	})
	if n < len(src) {
		one32(dst[n:], func(a uint32) uint32 { return f(a, binary.NativeEndian.Uint32(src[n:])) })
	}
}

// one32 sets the element at the start of dst to f of it, and returns what it was.
func one32(dst []byte, f func(a uint32) uint32) uint32 {
	p := word32(dst)
	for {
		old := atomic.LoadUint32(p)
		if now := f(old); now == old || atomic.CompareAndSwapUint32(p, old, now) {
			return old
		}
	}
}

func each64(dst, src []byte, f func(a, b uint64) uint64) {
	for i := 0; i+8 <= len(src); i += 8 {
		p, v := word64(dst[i:]), binary.NativeEndian.Uint64(src[i:])
		for old := atomic.LoadUint64(p); !atomic.CompareAndSwapUint64(p, old, f(old, v)); {
			old = atomic.LoadUint64(p)
		}
	}
}

func add64(dst, src []byte) {
	for i := 0; i+8 <= len(src); i += 8 {
		atomic.AddUint64(word64(dst[i:]), binary.NativeEndian.Uint64(src[i:]))
	}
}

// Combining is how elements of a Type are combined with the target's, of which Fetch wants
// the previous values.
type Combining struct {
	Op    Reduction
	Type  Type
	Fetch bool
}

// Known reports whether c is defined.
func (c Combining) Known() bool {
	return c.Type.Size() > 0 && (c.Op.Takes(c.Type) && (!c.Fetch || c.Op&Exclusive == 0) || c.Op == NoOp && c.Fetch)
}

// Needs returns the rights that c requires of the target's memory.
func (c Combining) Needs() fabric.Access {
	if c.Op == NoOp {
		return fabric.AccessRemoteAtomic
	}
	return need
}

// Append combines the elements of src, which a NoOp does not use, with those of dst, as
// Reduce does. With Fetch it appends the previous elements of dst to old.
func (c Combining) Append(old, dst, src []byte) []byte {
	size := c.Type.Size()
	switch {
	case !c.Fetch:
		Reduce(c.Op, c.Type, dst, src)
		return old
	case size == 8:
		m := RMW{Func: Combine, Op: c.Op, Type: c.Type}
		switch {
		case c.Op == Sum && c.Type < Float32:
			m.Func = Add
		case c.Op == Replace:
			m.Func = Set
		}
		for i := 0; i < len(dst); i += 8 {
			if c.Op != NoOp {
				m.Arg = binary.NativeEndian.Uint64(src[i:])
			}
			old = binary.NativeEndian.AppendUint64(old, m.Do(dst[i:]))
		}
		return old
	}
	var v uint32
	for i := 0; i < len(dst); i += 4 {
		if c.Op != NoOp {
			v = binary.NativeEndian.Uint32(src[i:])
		}
		old = binary.NativeEndian.AppendUint32(old, one32(dst[i:], func(a uint32) uint32 { return uint32(combineBits(c.Op, c.Type, uint64(a), uint64(v))) }))
	}
	return old
}

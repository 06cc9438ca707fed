package onesided

import "encoding/binary"

// Func is the function of an atomic.
type Func uint8

// Functions of an RMW.
const (
	Add Func = iota
	Set
	And
	Or
	Xor
	SetIf   // if the word equals Compare
	Combine // like the reduction Op of elements of Type
)

// RMW is an atomic read-modify-write of a word of 8 bytes, or of an aligned half of one, as
// a function of the word: for a loop of compare-and-swaps.
type RMW struct {
	Arg, Compare uint64
	Func         Func
	Op           Reduction
	Type         Type
	Half         bool  // 4 bytes
	Shift        uint8 // position of the half in the word, in bits
}

// Shift returns the position of the half at addr in its aligned word of 8 bytes, in bits,
// for the byte order of this machine.
func Shift(addr uint64) uint8 {
	if bigEndian == (addr&4 == 0) {
		return 32
	}
	return 0
}

// Value returns the part of word that the atomic works on.
func (m *RMW) Value(word uint64) uint64 {
	if m.Half {
		return uint64(uint32(word >> m.Shift))
	}
	return word
}

// Apply returns the new word for old. ok is false if it does not change and need not be
// written, which is possible only for SetIf and Combine.
func (m *RMW) Apply(old uint64) (now uint64, ok bool) {
	v := m.Value(old)
	switch m.Func {
	case Add:
		v += m.Arg
	case Set:
		v = m.Arg
	case And:
		v &= m.Arg
	case Or:
		v |= m.Arg
	case Xor:
		v ^= m.Arg
	case SetIf:
		if v != m.Compare {
			return old, false
		}
		v = m.Arg
	case Combine:
		now := combineBits(m.Op, m.Type, v, m.Arg)
		if now == v {
			return old, false
		}
		v = now
	}
	if m.Half {
		const low = 1<<32 - 1
		v = old&^(low<<m.Shift) | (v&low)<<m.Shift
	}
	return v, true
}

// bigEndian is the byte order of this machine.
var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// Cond is a condition on a word compared with a value.
type Cond uint8

// Conditions.
const (
	EQ Cond = iota // equal
	NE             // not equal
	GE             // greater or equal
	GT             // greater
	LE             // less or equal
	LT             // less
)

// Known reports whether c is one of the constants.
func (c Cond) Known() bool { return c <= LT }

// Holds reports whether word meets c with value.
func (c Cond) Holds(word, value uint64) bool {
	switch c {
	case EQ:
		return word == value
	case NE:
		return word != value
	case GE:
		return word >= value
	case GT:
		return word > value
	case LE:
		return word <= value
	}
	return word < value
}

// Meets reports whether a word of type t meets c with value, both given by their bits.
func (t Type) Meets(word uint64, c Cond, value uint64) bool {
	return c.Holds(t.rank(word), t.rank(value))
}

// rank maps words of the integer type t, by their bits, to the order of unsigned numbers.
func (t Type) rank(bits uint64) uint64 {
	switch t {
	case Int32:
		return uint64(uint32(bits) ^ 1<<31)
	case Int64:
		return bits ^ 1<<63
	}
	return bits
}

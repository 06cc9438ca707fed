package onesided

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

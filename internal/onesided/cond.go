package onesided

// Cond is what a word is compared with a value for. Both are unsigned.
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

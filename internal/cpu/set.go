package cpu

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// MaxCPU bounds the processor numbers: twice the largest number that Linux can be built
// for.
const MaxCPU = 16384

// ErrSet says that a list of processors is malformed.
var ErrSet = errors.New("malformed list of processors")

// Set is a set of processor numbers: processor i is bit i%64 of word i/64, and the last word
// is not 0. The zero value is empty; as the set that a process may use, it means "unknown".
// Sets are immutable values.
type Set struct{ w []uint64 }

// Of returns the set of the given processors; numbers outside [0, MaxCPU) are ignored.
func Of(cpus ...int) Set {
	var s Set
	for _, c := range cpus {
		s.add(c)
	}
	return s
}

func (s *Set) add(cpu int) {
	if cpu < 0 || cpu >= MaxCPU {
		return
	}
	for len(s.w) <= cpu/64 {
		s.w = append(s.w, 0)
	}
	s.w[cpu/64] |= 1 << (cpu % 64)
}

// trimmed returns the set of the words w, which it keeps.
func trimmed(w []uint64) Set {
	for len(w) > 0 && w[len(w)-1] == 0 {
		w = w[:len(w)-1]
	}
	if len(w) == 0 {
		return Set{}
	}
	return Set{w}
}

// ParseSet parses a list in the kernel's format: numbers and ranges separated by commas,
// "0-3,8", and white space around it; the empty text is the empty set. Errors wrap ErrSet.
func ParseSet(text string) (Set, error) {
	var s Set
	text = strings.TrimSpace(text)
	if text == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.ParseUint(from, 10, 32)
		b := a
		if err == nil && isRange {
			b, err = strconv.ParseUint(to, 10, 32)
		}
		if err != nil || a > b || b >= MaxCPU {
			return Set{}, fmt.Errorf("%w: %.64q", ErrSet, text)
		}
		for c := a; c <= b; c++ {
			s.add(int(c))
		}
	}
	return s, nil
}

// String returns the list in the format of ParseSet.
func (s Set) String() string {
	var b []byte
	cpus := s.CPUs()
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(cpus[i]), 10)
		if j > i {
			b = append(b, '-')
			b = strconv.AppendInt(b, int64(cpus[j]), 10)
		}
		i = j + 1
	}
	return string(b)
}

// CPUs lists the processors in ascending order.
func (s Set) CPUs() []int {
	var all []int
	for i, w := range s.w {
		for ; w != 0; w &= w - 1 {
			all = append(all, 64*i+bits.TrailingZeros64(w))
		}
	}
	return all
}

// Len returns the number of processors.
func (s Set) Len() int {
	n := 0
	for _, w := range s.w {
		n += bits.OnesCount64(w)
	}
	return n
}

// Has reports whether cpu is in the set.
func (s Set) Has(cpu int) bool {
	return cpu >= 0 && cpu/64 < len(s.w) && s.w[cpu/64]>>(cpu%64)&1 != 0
}

// Within reports whether every processor of s is in t.
func (s Set) Within(t Set) bool { return s.And(t).Len() == s.Len() }

// Meets reports whether the sets have a processor in common.
func (s Set) Meets(t Set) bool { return s.And(t).Len() > 0 }

// Equal reports whether the sets have the same processors.
func (s Set) Equal(t Set) bool { return slices.Equal(s.w, t.w) }

// And returns the intersection.
func (s Set) And(t Set) Set {
	w := make([]uint64, min(len(s.w), len(t.w)))
	for i := range w {
		w[i] = s.w[i] & t.w[i]
	}
	return trimmed(w)
}

// Without returns the processors of s that are not in t.
func (s Set) Without(t Set) Set {
	w := slices.Clone(s.w)
	for i := range min(len(w), len(t.w)) {
		w[i] &^= t.w[i]
	}
	return trimmed(w)
}

// Or returns the union.
func (s Set) Or(t Set) Set {
	w := make([]uint64, max(len(s.w), len(t.w)))
	copy(w, s.w)
	for i, x := range t.w {
		w[i] |= x
	}
	return trimmed(w)
}

// Union returns the processors that are in any of the sets.
func Union(all []Set) (u Set) {
	for _, s := range all {
		u = u.Or(s)
	}
	return u
}

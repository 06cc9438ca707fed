package topo

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// MaxCPU bounds the processor numbers: twice the largest number that Linux can be built
// for.
const MaxCPU = 16384

// ErrList says that a list of processors is malformed.
var ErrList = errors.New("topo: malformed list of processors")

// Set is a set of processor numbers. The zero value is empty. Sets are immutable values.
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

// ParseList parses a list in the kernel's format: numbers and ranges separated by commas,
// "0-3,8"; the empty text is the empty set. Errors wrap ErrList.
func ParseList(text string) (Set, error) {
	var s Set
	text = strings.TrimSpace(text)
	if text == "" {
		return s, nil
	}
	for _, part := range strings.Split(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.ParseUint(from, 10, 32)
		b := a
		if err == nil && isRange {
			b, err = strconv.ParseUint(to, 10, 32)
		}
		if err != nil || a > b || b >= MaxCPU {
			return Set{}, fmt.Errorf("%w: %.64q", ErrList, text)
		}
		for c := a; c <= b; c++ {
			s.add(int(c))
		}
	}
	return s, nil
}

// String returns the list in the format of ParseList.
func (s Set) String() string {
	var b strings.Builder
	cpus := s.CPUs()
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(cpus[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(cpus[j]))
		}
		i = j + 1
	}
	return b.String()
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

// And returns the intersection.
func (s Set) And(t Set) Set {
	var u Set
	for i := range min(len(s.w), len(t.w)) {
		u.w = append(u.w, s.w[i]&t.w[i])
	}
	return u
}

// Or returns the union.
func (s Set) Or(t Set) Set {
	u := Set{w: make([]uint64, max(len(s.w), len(t.w)))}
	copy(u.w, s.w)
	for i, w := range t.w {
		u.w[i] |= w
	}
	return u
}

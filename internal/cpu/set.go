package cpu

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Set is a set of processors: processor i is bit i&63 of word i>>6. The zero value is
// empty; as the set that a process may use, it means "unknown".
type Set []uint64

// ErrSet reports a malformed list of processors.
var ErrSet = errors.New("malformed list of processors")

// maxCPU bounds the memory allocated for a list: the kernel's own limit is 8192.
const maxCPU = 1 << 13

// Add adds processor i to the set. It does nothing unless 0 ≤ i < 8192.
func (s *Set) Add(i int) {
	if i < 0 || i >= maxCPU {
		return
	}
	for len(*s) <= i>>6 {
		*s = append(*s, 0)
	}
	(*s)[i>>6] |= 1 << (i & 63)
}

// Len returns the number of processors in the set.
func (s Set) Len() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// Common returns the number of processors in both sets.
func (s Set) Common(t Set) (n int) {
	for i := range min(len(s), len(t)) {
		n += bits.OnesCount64(s[i] & t[i])
	}
	return n
}

// Union returns the processors that are in any of the sets.
func Union(all []Set) (u Set) {
	for _, s := range all {
		for len(u) < len(s) {
			u = append(u, 0)
		}
		for i, w := range s {
			u[i] |= w
		}
	}
	return u
}

// String lists the processors in the kernel's format: "0-3,8".
func (s Set) String() string {
	var b []byte
	in := func(i int) bool { return i>>6 < len(s) && s[i>>6]>>(i&63)&1 == 1 }
	for i := 0; i < 64*len(s); i++ {
		if !in(i) {
			continue
		}
		last := i
		for in(last + 1) {
			last++
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(i), 10)
		if last > i {
			b = append(b, '-')
			b = strconv.AppendInt(b, int64(last), 10)
		}
		i = last
	}
	return string(b)
}

// ParseSet parses the format of String. Errors wrap ErrSet.
func ParseSet(list string) (s Set, err error) {
	if list == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.ParseUint(from, 10, 16)
		b := a
		if err == nil && isRange {
			b, err = strconv.ParseUint(to, 10, 16)
		}
		if err != nil || b < a || b >= maxCPU {
			return nil, fmt.Errorf("%w: %.40q", ErrSet, part)
		}
		for i := a; i <= b; i++ {
			s.Add(int(i))
		}
	}
	return s, nil
}

package verbs

import (
	"fmt"
	"sync"
)

// Availability says how far this program got on the way to libibverbs.
type Availability uint8

// Availabilities, from worst to best.
const (
	NoCgo     Availability = iota // built without cgo, or for a system that has no libibverbs
	NoHeaders                     // infiniband/verbs.h was missing at build time
	NoLibrary                     // libibverbs.so.1 could not be opened at run time
	Available                     // the library is open; there may still be no device
)

// String names the availability.
func (a Availability) String() string {
	switch a {
	case NoCgo:
		return "built without cgo"
	case NoHeaders:
		return "built without the headers of libibverbs"
	case NoLibrary:
		return "libibverbs not found"
	case Available:
		return "libibverbs found"
	}
	return fmt.Sprintf("availability(%d)", uint8(a))
}

// SupportInfo is the answer of [Support].
type SupportInfo struct {
	Availability Availability
	Detail       string // what exactly was found or missing
	Fix          string // what to do about it; empty if nothing is wrong
}

// String is one line for a person.
func (s SupportInfo) String() string {
	t := s.Availability.String()
	if s.Detail != "" {
		t += ": " + s.Detail
	}
	if s.Fix != "" {
		t += " (" + s.Fix + ")"
	}
	return t
}

// Support says whether verbs can be used, and if not why. The library is opened
// at the first call of any function of the package; the answer never changes
// afterwards.
func Support() SupportInfo { return support() }

var support = sync.OnceValue(func() SupportInfo {
	a, detail := rawLoad()
	s := SupportInfo{Availability: a, Detail: detail}
	switch a {
	case NoCgo:
		s.Fix = "build with CGO_ENABLED=1 on 64-bit Linux"
	case NoHeaders:
		s.Fix = "install libibverbs-dev or rdma-core-devel and build again"
	case NoLibrary:
		s.Fix = "install libibverbs1 and ibverbs-providers, or rdma-core"
	}
	return s
})

// load opens the library or explains in an error why it cannot.
func load(op string) error {
	s := Support()
	if s.Availability == Available {
		return nil
	}
	return fmt.Errorf("%s: %w: %v", op, ErrNotSupported, s)
}

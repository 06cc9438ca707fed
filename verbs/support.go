package verbs

import (
	"fmt"
	"sync"
)

// libraryFile is the name by which the system's loader finds libibverbs.
const libraryFile = "libibverbs.so.1"

// Availability is the degree to which libibverbs can be used.
type Availability uint8

// Availabilities, from worst to best.
const (
	NoCgo      Availability = iota // built without cgo, or for a system that has no libibverbs
	NoLibrary                      // libibverbs.so.1 could not be opened
	BadLibrary                     // libibverbs.so.1 lacks a function: see [SymbolError]
	Available                      // the library is open; there may still be no device
)

// String names the availability.
func (a Availability) String() string {
	switch a {
	case NoCgo:
		return "built without cgo"
	case NoLibrary:
		return "libibverbs not found"
	case BadLibrary:
		return "libibverbs cannot be used"
	case Available:
		return "libibverbs found"
	}
	return fmt.Sprintf("availability(%d)", uint8(a))
}

// SupportInfo is the result of [Support].
type SupportInfo struct {
	Availability Availability
	Detail       string       // what exactly was found or is missing
	Fix          string       // remedy; empty if nothing is wrong
	Missing      *SymbolError // the function that a BadLibrary lacks
}

// String returns a one-line description.
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

// Support reports whether verbs can be used, and the reason if not. The library is opened
// at the first call of any function of the package; the result never changes afterwards.
func Support() SupportInfo { return support() }

var support = sync.OnceValue(func() SupportInfo { return loadLibrary(libraryFile) })

// loadLibrary opens the library of that name and returns the result.
func loadLibrary(file string) SupportInfo {
	s := rawLoad(file)
	switch s.Availability {
	case NoCgo:
		s.Fix = "build on 64-bit Linux with CGO_ENABLED=1 and a C compiler, packages gcc and libc6-dev"
	case NoLibrary:
		s.Fix = "install libibverbs1 and ibverbs-providers, or rdma-core"
	case BadLibrary:
		s.Fix = "put libibverbs1 or rdma-core of the distribution in front of it: see LD_LIBRARY_PATH and /etc/ld.so.conf.d"
	}
	return s
}

// load opens the library or returns an error with the reason of the failure.
func load(op string) error { return Support().unusable(op) }

// unusable returns nil if the library can be used, else an error.
func (s SupportInfo) unusable(op string) error {
	switch s.Availability {
	case Available:
		return nil
	case BadLibrary:
		return fmt.Errorf("%s: %w (%s)", op, s.Missing, s.Fix)
	}
	return fmt.Errorf("%s: %w: %v", op, ErrNotSupported, s)
}

package topo

import "github.com/seed33544411/rma/internal/cpu"

// Near is the distance of two processes of a host, from the processors that each may run
// on. Costs of a transfer differ by factors between these, so figures measured for one do
// not hold for another.
type Near uint8

// Distances.
const (
	Unknown Near = iota // the host does not report it, or it depends on the scheduler's placement
	Core                // always on one core: they share all caches, and its time or its threads
	L2                  // always on processors that share a cache of level 2
	L3                  // always on processors that share a cache of level 3 or above
	Socket              // always in one package, without a cache in common
	Far                 // always in different packages
)

// String returns the name in profiles and explanations; "" for Unknown.
func (n Near) String() string {
	switch n {
	case Core:
		return "core"
	case L2:
		return "l2"
	case L3:
		return "l3"
	case Socket:
		return "socket"
	case Far:
		return "far"
	}
	return ""
}

// Between returns the distance of processes that may run on the processors a and b. If the
// distance varies with their placement, the result is what always holds: L3 for two
// processes that may run anywhere on one shared cache, Unknown for two that may run on
// several sockets.
func (h *Host) Between(a, b cpu.Set) Near {
	a, b = a.And(h.Known), b.And(h.Known)
	if a.Len() == 0 || b.Len() == 0 {
		return Unknown
	}
	both := a.Or(b)
	if a.Len() == 1 && both.Len() == 1 || inOne(h.Cores, both) {
		return Core
	}
	for _, c := range h.Caches { // lower levels first: the nearest decides
		if c.Level >= 2 && both.Within(c.CPUs) {
			if c.Level == 2 {
				return L2
			}
			return L3
		}
	}
	switch {
	case inOne(h.Packages, both):
		if h.mayShare(a, b) {
			return Unknown
		}
		return Socket
	case h.apart(a, b):
		return Far
	}
	return Unknown
}

func inOne(sets []cpu.Set, s cpu.Set) bool {
	for _, t := range sets {
		if s.Within(t) {
			return true
		}
	}
	return false
}

// mayShare reports whether there is a cache beyond level 1 that a processor of a
// and one of b share.
func (h *Host) mayShare(a, b cpu.Set) bool {
	for _, c := range h.Caches {
		if c.Level >= 2 && c.CPUs.Meets(a) && c.CPUs.Meets(b) {
			return true
		}
	}
	return a.Meets(b)
}

// apart reports whether no package has processors of both.
func (h *Host) apart(a, b cpu.Set) bool {
	for _, p := range h.Packages {
		if p.Meets(a) && p.Meets(b) {
			return false
		}
	}
	return len(h.Packages) > 1
}

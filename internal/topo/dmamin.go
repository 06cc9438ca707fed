package topo

// DMAMin is the size from which a copy should bypass a cache of the given bytes
// that so many processes use: cache / (2 × users). A copy of that size fills a
// user's share with source and destination, and evicts what others work on. From
// Buntinas, Goglin, Goodell, Mercier, Moreaud: Cache-Efficient, Intranode,
// Large-Message MPI Communication with MPICH2-Nemesis, ICPP 2009. Fewer than one
// user count as one.
func DMAMin(cache uint64, users int) uint64 {
	return cache / (2 * uint64(max(users, 1)))
}

// Shared is the largest cache that a process on the processors s may keep data in:
// of the highest level; of several of that level, the smallest. ok is false where
// the host tells of none.
func (h *Host) Shared(s Set) (c Cache, ok bool) {
	for _, k := range h.Caches {
		if !k.CPUs.Meets(s) {
			continue
		}
		if !ok || k.Level > c.Level || k.Level == c.Level && k.Size < c.Size {
			c, ok = k, true
		}
	}
	return c, ok
}

// Level1 is the smallest cache of level 1 of the processors s, in bytes; 0 where
// the host tells of none.
func (h *Host) Level1(s Set) uint64 {
	var n uint64
	for _, k := range h.Caches {
		if k.Level == 1 && k.CPUs.Meets(s) && (n == 0 || k.Size < n) {
			n = k.Size
		}
	}
	return n
}

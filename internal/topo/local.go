package topo

import (
	"os"
	"runtime"
	"sync"

	"github.com/klauspost/cpuid/v2"
)

var local struct {
	sync.Mutex
	host *Host
}

// Local returns this host, as far as it concerns the processors that this process may run
// on and those of the given sets; each is read once. If sysfs has no data, all processors
// are assumed to share the caches whose sizes the processor itself reports. Never nil.
func Local(also ...Set) *Host {
	want := Allowed()
	for _, s := range also {
		want = want.Or(s)
	}
	local.Lock()
	defer local.Unlock()
	root := os.DirFS("/")
	switch h := local.host; {
	case h == nil:
		var err error
		if h, err = Read(root, want); err != nil || len(h.Caches) == 0 {
			h = fallback(runtime.NumCPU(), cpuid.CPU.Cache.L1D, cpuid.CPU.Cache.L2, cpuid.CPU.Cache.L3)
		}
		local.host = h
	case !want.And(h.Online).Within(h.Known):
		// A read that succeeded before will succeed again; if not, the known data stays.
		if more, err := h.with(root, want); err == nil {
			local.host = more
		}
	}
	return local.host
}

// fallback returns a host of n processors with caches of those sizes that are positive: the
// lower levels one a processor, the last shared by all.
func fallback(n, l1, l2, l3 int) *Host {
	h := &Host{}
	for c := range n {
		h.Online.add(c)
	}
	h.Known = h.Online
	sizes := []int{l1, l2, l3}
	for i, size := range sizes {
		if size <= 0 {
			continue
		}
		if i == len(sizes)-1 {
			h.addCache(Cache{Level: i + 1, Size: uint64(size), CPUs: h.Online})
			continue
		}
		for c := range n {
			h.addCache(Cache{Level: i + 1, Size: uint64(size), CPUs: Of(c)})
		}
	}
	return h
}

// DMAMin returns the size from which a copy should bypass a cache of the given bytes that
// users processes use: cache / (2 × users). A copy of that size fills a user's share with
// source and destination, and evicts the data of others. From Buntinas, Goglin, Goodell,
// Mercier, Moreaud: Cache-Efficient, Intranode, Large-Message MPI Communication with
// MPICH2-Nemesis, ICPP 2009. Fewer than one user count as one.
func DMAMin(cache uint64, users int) uint64 {
	return cache / (2 * uint64(max(users, 1)))
}

// Shared returns the largest cache that a process on the processors s may keep data in: of
// the highest level; of several of that level, the smallest. ok is false if the host
// reports none.
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

// Level1 returns the size of the smallest cache of level 1 of the processors s, in bytes; 0
// if the host reports none.
func (h *Host) Level1(s Set) uint64 {
	var n uint64
	for _, k := range h.Caches {
		if k.Level == 1 && k.CPUs.Meets(s) && (n == 0 || k.Size < n) {
			n = k.Size
		}
	}
	return n
}

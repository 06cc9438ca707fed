package topo

import (
	"os"
	"runtime"
	"sync"

	"github.com/klauspost/cpuid/v2"

	"github.com/seed33544411/rma/internal/cpu"
)

var local struct {
	sync.Mutex
	host *Host
}

// Local returns this host, as far as it concerns the processors that this process may run
// on and those of the given sets; each is read once. If the host reports no caches, those
// that the processor itself reports are assumed. Never nil.
func Local(also ...cpu.Set) *Host {
	want := usable()
	for _, s := range also {
		want = want.Or(s)
	}
	local.Lock()
	defer local.Unlock()
	root := os.DirFS("/")
	switch h := local.host; {
	case h == nil:
		h = Read(root, usable(), want)
		if len(h.Caches) == 0 {
			h.assumeCaches(cpuid.CPU.Cache.L1D, cpuid.CPU.Cache.L2, cpuid.CPU.Cache.L3)
		}
		local.host = h
	case !want.And(h.Online).Within(h.Known):
		local.host = h.with(root, want)
	}
	return local.host
}

// usable returns the processors that this process may run on.
func usable() cpu.Set {
	if s := cpu.Allowed(); s.Len() > 0 {
		return s
	}
	var s cpu.Set
	for c := range runtime.NumCPU() {
		s = s.Or(cpu.Of(c))
	}
	return s
}

// LocalNodes returns the NUMA nodes of this host as ReadNodes does.
func LocalNodes() (nodes []Node, assumed []string) {
	return ReadNodes(os.DirFS("/"), Local().Online)
}

// assumeCaches adds caches of those sizes in bytes that are positive: the lower levels one a
// processor, the last shared by all.
func (h *Host) assumeCaches(sizes ...int) {
	for i, size := range sizes {
		if size <= 0 {
			continue
		}
		if i == len(sizes)-1 {
			h.addCache(Cache{Level: i + 1, Size: uint64(size), CPUs: h.Online})
			continue
		}
		for _, c := range h.Online.CPUs() {
			h.addCache(Cache{Level: i + 1, Size: uint64(size), CPUs: cpu.Of(c)})
		}
	}
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
func (h *Host) Shared(s cpu.Set) (c Cache, ok bool) {
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
func (h *Host) Level1(s cpu.Set) uint64 {
	var n uint64
	for _, k := range h.Caches {
		if k.Level == 1 && k.CPUs.Meets(s) && (n == 0 || k.Size < n) {
			n = k.Size
		}
	}
	return n
}

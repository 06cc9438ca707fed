package topo

import (
	"os"
	"runtime"
	"sync"

	"github.com/klauspost/cpuid/v2"
)

// Local is this host, read once. Where sysfs does not tell, all processors are
// taken to share the caches of which the processor itself tells the sizes. Never nil.
var Local = sync.OnceValue(func() *Host {
	if h, err := Read(os.DirFS("/")); err == nil && len(h.Caches) > 0 {
		return h
	}
	return fallback(runtime.NumCPU(), cpuid.CPU.Cache.L1D, cpuid.CPU.Cache.L2, cpuid.CPU.Cache.L3)
})

// fallback is a host of n processors with caches of these sizes, those that are
// positive: the lower levels one a processor, the last shared by all.
func fallback(n, l1, l2, l3 int) *Host {
	h := &Host{}
	for c := range n {
		h.Online.add(c)
	}
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

// Package topo describes the arrangement of this host's processors: which of them share a
// core, a cache or a package.
//
// [Read] reads it from sysfs; [Local] returns this host's. It reads each processor once,
// when it is first needed, and takes the sizes of caches from the processor itself if there
// is no sysfs. The package answers three questions: the distance of two processes
// ([Host.Between], from the processors that each may run on), the size from which a
// copy should bypass the cache ([DMAMin], [Host.Shared]), and the processors that ranks
// should be bound to ([Host.Place], from the NUMA nodes of [ReadNodes]).
//
// A cpuset of a control group needs no reading of its own: the kernel takes its processors
// out of the affinity mask of every thread in it, which is what [cpu.Allowed] returns.
//
// All values are immutable after reading: all methods may be called from any goroutine. A
// host may report wrong data (virtual machines invent topologies, containers hide them);
// wrong data costs speed, never correctness.
//
// It imports nothing of the project.
//
//	set.go      cpu.Set: processors as a bit set, and lists like 0-3,8
//	host.go     Host, Cache, Read
//	local.go    this host, and the size from which a copy bypasses its cache;
//	            bind_linux.go the processors of a thread
//	near.go     Near: how near two processes are
//	node.go     Node, Device: NUMA nodes, and the devices at them
//	place.go    Policy, Binding: the processors of ranks and of their progress threads
package topo

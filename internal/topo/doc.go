// Package topo describes the arrangement of this host's processors: which of them share a
// core, a cache or a package.
//
// [Read] reads it from sysfs; [Local] returns this host's. It reads each processor once,
// when it is first needed, and takes the sizes of caches from the processor itself if there
// is no sysfs. The package answers two questions: the distance of two processes
// ([Host.Between], from the processors that each may run on), and the size from which a
// copy should bypass the cache ([DMAMin], [Host.Shared]).
//
// All values are immutable after reading: all methods may be called from any goroutine. A
// host may report wrong data (virtual machines invent topologies, containers hide them);
// wrong data costs speed, never correctness.
//
// It imports nothing of the project.
//
//	set.go      Set: processors as a bit set, and lists like 0-3,8
//	host.go     Host, Cache, Read
//	local.go    this host, and the size from which a copy bypasses its cache;
//	            allowed_linux.go the processors of this process
//	near.go     Near: how near two processes are
package topo

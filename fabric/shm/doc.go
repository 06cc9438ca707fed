// Package shm is the link between processes of one host. Remote memory is mapped: a write is
// a copy, an atomic is an instruction, and the target takes no part.
//
// The package is a part of the engine below package rma, which opens it (internal/links).
// Applications use rma; the exported names may change in any release.
//
// It imports fabric, fabric/internal/softlink, internal/cpu and internal/offheap. It works
// on Linux only; elsewhere Open returns an error.
//
// # What is shared
//
// A link has a control segment: a table of its regions (key, address, length, rights,
// segment and offset) and a word that says whether the owner sleeps. Peers map it read-only
// and look up every remote key there, so that withdrawing a region takes effect at once and
// without a message. An endpoint caches the entries it used last, each guarded by its
// generation.
//
// An endpoint has a channel segment each way: a ring of 64-byte frames
// (notifications, requests), replies and bounce buffers. layout.go has the
// picture. Every region from Link.Alloc is a segment of its own.
//
// All of them are memfds sealed against changes of their size. Their descriptors are sent
// over a Unix socket: at Connect, and when regions are allocated later. The receiver checks
// seals, size and file system before mapping, so that no access can fault. Descriptors that
// do not fit the socket wait in the sender's outbox; a segment that has not arrived is
// accessed like private memory.
//
// # Methods of access
//
//   - mapped: memory from Link.Alloc (and memory registered inside of it). Post executes
//     loads, stores and processor atomics. Large copies use the method that internal/bulk
//     has measured as best for their size, the largest bypass the cache.
//   - CMA: other registered memory. Post calls process_vm_readv and process_vm_writev, if a
//     transfer tried at Connect worked in both directions. Small requests of one list share
//     a call.
//   - by the target: other requests (no CMA; atomics on private memory). They are frames in
//     the ring, which the target's Poll executes; see queue_linux.go.
//
// # Promises and limits
//
//   - A request that is executed in Post is complete when Post returns; the next Poll
//     returns its completion. The order within an endpoint is always the order of posting:
//     FlagFence costs nothing.
//   - Caps.LastByteLast holds for all three methods. The last word of a write is one atomic
//     store in mapped memory; the kernel's copy to private memory may in principle be seen
//     half done, as on any memory that is not mapped.
//   - Caps.WakesOnWrite: a reader that polls plain memory must check it once more between
//     Link.Arm and sleeping. Requests with fabric.FlagQuiet wake only an owner that watches
//     its memory (Watch).
//   - A zero-length request accesses nothing and checks no key.
//   - A full ring of notifications makes Post refuse the rest of the list; when the target
//     has made room, it wakes the poster if that one sleeps.
//   - An endpoint that closes or fails leaves a last frame for its peer, which goes down at
//     its next Poll. The socket reports an endpoint that dies, within a millisecond of
//     polling or by waking up from FD. Notifications sent before are delivered first. A peer
//     that is alive but does not poll, or was stopped, is not gone: requests that need it
//     wait, without bound as far as the link is concerned, and EndpointOptions.PeerTimeout
//     has no effect.
//   - A refused request takes both endpoints down, the target's with the status of the
//     refusal, as on a device.
//   - Lack of a resource is reported as fabric.ErrResources, and the connection survives it:
//     a segment whose descriptor this process cannot receive is accessed like private
//     memory, and requested again. Control segments, channels and segments are committed
//     when they are created, bounce buffers at their first use, so that no access ends in
//     SIGBUS (before Linux 5.14 bounce buffers are not committed). In a full memory cgroup
//     the kernel kills a process instead, as for any memory.
//   - Private memory is not accessed by peers after Region.Close has returned nil. A peer
//     that copies to or from it announces that in its hazard word, moves at most 4 MiB per
//     system call, and checks between two calls whether it may continue. Close waits for it,
//     0.2 s at most: a peer that was stopped or is starved in a copy uses the memory longer,
//     and Close returns fabric.ErrInUse until the copy has ended, or the peer's end of the
//     socket is closed (hazard_linux.go has the protocol and the proof). This also holds
//     after the endpoint and the link have been closed on this side. Segments stay mapped in
//     peers until they have processed the announcement: a peer may finish a store into
//     memory of a segment that was closed here, which is not read any longer, and into a
//     part of an open segment that was registered separately and closed.
//   - Memory: 1 MiB per link, and 0.5 MiB of address space per endpoint and side, of which a
//     page and the ring (16 KiB) are in use until the bounce buffers are. Descriptors: four
//     per link, one per region of Link.Alloc (peers receive it, with AllocFor one of them, map it and close it), one
//     per endpoint.
//   - Of each peer at most 4096 segments are mapped, with no more bytes in all than the host has
//     memory and swap space, nor than a quarter of what the processor addresses. Others are
//     accessed like private memory.
//
// # Trust
//
// Peers must run as the same user and prove that they received the endpoint's address. The
// side that posts checks keys, bounds and rights of mapped memory: these checks guard
// against mistakes, not against a process that could use ptrace as well. Everything that a
// peer writes to shared memory or the socket is nevertheless checked before use; a corrupt
// peer takes down its endpoint, with [ErrCorrupt], and nothing else.
//
// # Files
//
//	layout.go, frame.go   shared layouts; the codec of a frame
//	channel_linux.go      creating and mapping segments, the rings of frames in them;
//	                      memfd_linux.go  sealed memory files
//	socket_linux.go       messages on the socket, announcements of segments
//	address.go, handshake_linux.go  how two endpoints find each other
//	link_linux.go         Link: Poll, Arm; region_linux.go  regions, the table
//
// An endpoint's methods lie in five files; its parts are types of their own:
//
//	endpoint_linux.go     state, going down; connect_linux.go  Connect
//	post_linux.go         requests executed in the call: Post, Do, Reach; the doorbell that
//	                      wakes the peer for them
//	queue_linux.go        requests that the target executes; serve_linux.go  those of the peer
//	peermemory_linux.go   peerMemory: the peer's table and segments
//	cma_linux.go          cma: process_vm calls; hazard_linux.go  when memory that is being
//	                      closed is no longer in use
//	move.go               copies, including those of large blocks, and the order of stores;
//	                      copies_linux.go  sizes from which each method is used
//
// Tests: fabric/fabrictest runs over this link with each method forced. The tests here cover
// layouts, codecs (fuzzed), two processes with kill -9, hostile peers and leaks.
package shm

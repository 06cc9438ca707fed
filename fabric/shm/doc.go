// Package shm is the link between processes of one host: remote memory is
// mapped, so that a write is a copy and an atomic an instruction, and the
// target takes no part.
//
// It imports fabric, fabric/internal/softlink, internal/cpu and
// internal/offheap. Linux only; elsewhere Open says so.
//
// # What is shared
//
// A link has a control segment: a table of its regions (key, address, length,
// rights, where in which segment) and the word that says whether the owner
// sleeps. Peers map it read-only and look every remote key up there, so that
// withdrawing a region takes effect at once and without a message. An endpoint
// keeps the entries it used last, each guarded by its generation.
//
// An endpoint has a channel segment each way: a ring of 64-byte frames
// (notifications, requests), replies and bounce buffers. layout.go has the
// picture. Every region from Link.Alloc is a segment of its own.
//
// All of them are memfds sealed against changing their size, and travel as
// descriptors over a Unix socket: at Connect and when regions are allocated
// later. The receiver checks seals, size and file system before mapping, so
// that no access can fault. What does not fit into the socket waits in the
// sender's outbox; a segment that has not arrived is treated as private memory.
//
// # Ways to the memory
//
//   - mapped: memory from Link.Alloc (and memory registered inside of it).
//     Loads, stores and processor atomics, in Post. Large ones in the way that
//     internal/bulk finds best for their size, past the cache in the end.
//   - CMA: other registered memory, by process_vm_readv and process_vm_writev,
//     in Post; used if a transfer tried at Connect works in both directions. Small
//     requests of one list share a call.
//   - by the target: the rest (no CMA; atomics on private memory). Frames in
//     the ring, executed by the target's Poll; see queue.
//
// # Promises and limits
//
//   - A request that is executed in Post is complete when Post returns; its
//     completion is there at the next Poll. Order within an endpoint is the
//     order of posting, always: FlagFence is free.
//   - Caps.LastByteLast holds on all three ways. The last word of a write is one
//     atomic store in mapped memory; the kernel's copy to private memory may in
//     principle be seen half done, as any other memory that is not mapped.
//   - Caps.WakesOnWrite: whoever polls plain memory looks at it once more
//     between Link.Arm and sleeping.
//   - A zero-length request touches nothing and looks at no key.
//   - A full ring of notifications makes Post refuse the rest; when the target
//     has made room, the poster is woken if it sleeps.
//   - An endpoint that closes or fails leaves a last frame for its peer, which
//     goes down at its next Poll. One that dies is noticed through the socket,
//     within a millisecond of polling or by waking up from FD. Notifications
//     from before are delivered first. A peer that lives but does not poll, or was stopped,
//     is not gone: requests that need it wait, without end as far as the link is
//     concerned, and EndpointOptions.PeerTimeout means nothing here.
//   - A refused request takes both endpoints down, the target's with the status of the
//     refusal, as over a device.
//   - What is short is told as fabric.ErrResources, and a connection survives it: a segment
//     whose descriptor this process may not take is reached like private memory, and asked for
//     again. Control segments, channels, and segments are committed when they are made, bounce
//     buffers at their first use, so that no access ends in SIGBUS (before Linux 5.14 bounce
//     buffers are not). In a memory cgroup that is full the kernel kills instead, as it does
//     for any memory.
//   - Private memory is not touched by peers after Region.Close has returned nil. A peer
//     that copies to or from it says so in its hazard word, moves at most 4 MiB a system
//     call, and looks between two calls whether it still may. Close waits for it, 0.2 s at
//     most: a peer that was stopped or is starved there keeps the memory longer, and Close
//     returns fabric.ErrInUse until it is through, or its end of the socket says that it
//     is gone (hazard_linux.go has the protocol and why it is right). That holds as well
//     after the endpoint and the link have been closed on this side.
//     Segments stay with the peers that map them until they have read the news: a peer
//     may finish a store into memory of a segment that was closed here, where nobody
//     sees it, and into a part of an open one that was registered by itself and closed.
//   - Memory: 1 MiB a link, and 0.5 MiB of addresses an endpoint and side, of
//     which a page and the ring (16 KiB) are used until the bounce buffers
//     are. Descriptors: four a link, one each region of Link.Alloc, which peers receive and
//     close again, one an endpoint.
//
// # Trust
//
// Peers must run as the same user and prove that they were given the
// endpoint's address. Keys, bounds and rights of mapped memory are checked by
// the side that posts: they guard against mistakes, not against a process that
// could use ptrace as well. What a peer writes to shared memory or the socket
// is checked before use all the same; a corrupt peer takes down its endpoint,
// with [ErrCorrupt], and nothing else.
//
// # Files
//
//	layout.go, frame.go   shared layouts; the codec of a frame
//	channel_linux.go      the segments made and mapped, the rings of frames in them, the
//	                      doorbell that wakes a peer; memfd_linux.go  sealed memory files
//	socket_linux.go       messages on the socket, announcements of segments
//	address.go, handshake_linux.go  how two endpoints find each other
//	link_linux.go         Link: Poll, Arm; region_linux.go  regions, the table
//
// An endpoint's methods lie in five files, its parts are types of their own:
//
//	endpoint_linux.go     state, going down; connect_linux.go  Connect
//	post_linux.go         requests executed in the call: Post, Do, Reach
//	queue_linux.go        requests that the target executes; serve_linux.go  those of the peer
//	peermemory_linux.go   peerMemory: the peer's table and segments
//	cma_linux.go          cma: process_vm calls; hazard_linux.go  who is still using
//	                      memory that is being closed
//	move.go, bulk.go      copies and the order of stores, copies of large blocks;
//	                      copies_linux.go  from which sizes on
//
// Tests: fabric/fabrictest runs over this link with every way forced; here are
// layouts, codecs (fuzzed), two processes with kill -9, hostile peers, leaks.
package shm

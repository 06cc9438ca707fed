// Package tcp is the link over TCP sockets. It works on any network and needs no privileges.
//
// The package is a part of the engine below package rma, which opens it (internal/links).
// Applications use rma; the exported names may change in any release.
//
// One-sided operations travel as frames on one socket per endpoint; the payload of large
// ones uses further sockets. The target's Poll executes them (Caps.TargetProgress), without
// calls by the target's application: a write is checked against the table of registered
// regions before any of its bytes is stored, then its payload is received directly into
// place; a read is answered directly from the region.
//
// # Rules
//
//   - The owner's calls (Poll, Post) use raw non-blocking sockets: no goroutine, no runtime
//     poller, no allocation. One send carries all requests of one Post (as far as the socket
//     takes them), and one receive returns everything that has arrived. Only connection
//     set-up uses package net and goroutines.
//   - A peer cannot make this side's memory grow. The handshake limits its outstanding
//     requests; the answers to it (replies, acknowledgements) are kept as descriptors in
//     rings of that size and encoded when the socket has room. The receive side never waits
//     for the send side, so two sides that flood each other cannot deadlock.
//   - Every field of a frame is checked before it is used. A malformed frame ends that
//     endpoint and no other. A request that the regions do not permit is answered by a
//     refusal, its payload is discarded, and both ends go down in order: requests before it
//     complete, requests behind it are flushed.
//   - Region.Close returns only when no access of a peer is in progress: each access runs
//     inside a guard that Close waits for, as one bounded system call or copy, and every
//     continuation looks up the key again.
//   - A signalled write completes when the target acknowledges that it has placed the data.
//     Acknowledgements are cumulative and travel in any frame of that direction; they have a
//     frame of their own only if no other frame is sent for two polls.
//   - Payload of 256 KiB and more uses separate connections (lanes), so that small frames
//     never wait behind it, here or in the kernel. The end of a lane is the end of the
//     endpoint (LaneError).
//   - A protected connection (Config.Crypt) carries the same frames in records: they are
//     copied, sealed and sent; received, opened and copied to their place. No frame takes
//     effect before the tag of its record has been checked. The tag covers the copy, because
//     memory that a peer reads may change while it is sent.
//   - With Config.Resume an endpoint continues on another connection when its own is lost: each
//     request is executed once, and in order (resume.go).
//   - The last aligned 8 bytes of a write are stored last, in one atomic store.
//
// A peer is gone when its connection has ended, or when its host has acknowledged nothing
// for PeerTimeout, neither data nor the keepalive probes that are sent once a second. A
// process that is alive but receives nothing, such as a stopped one, is not gone: its host
// acknowledges, and the transfer continues when the process does. On Linux before 6.15 the
// probes of a full socket become rarer while it stays full, and the loss of a host in that
// time is detected by the next probe.
//
// # Files
//
//	endpoint.go    one connection: its life; progress.go: one visit of it; connect.go: its
//	               set-up
//	requester.go   requests of this side: requester_send.go frames them, requester_reply.go
//	               matches the answers; pieces.go: their local memory
//	responder.go   requests of the peer: checked and executed; responder_reply.go: answered
//	receiver.go    parses the incoming stream for these two
//	lane.go        connections for payload: lane_send.go, lane_receive.go; lane_chunk.go: the
//	               size of a send
//	outgoing.go, incoming.go  the byte streams of the first connection
//	completions.go completions and events that Poll has to deliver
//	failure.go     reasons for which an endpoint goes down
//	socket.go      a connection; record.go: protected by records; sockopt*.go: its options
//	frame.go       header of every frame; hello.go, address.go, crypt.go: formats and keys of
//	               set-up; class.go: classes of peers
//	state.go       link, endpoint, connector, strangers, region: what they hold
//	link.go        link: opening, closing; region.go: memory that peers may
//	               access; memory.go: their accesses
//	down.go        how an endpoint goes down and is forgotten; resume.go: or continues on another
//	               connection
//	poll.go        Poll, Arm, Disarm; new endpoints; one or two sockets, or many; handover.go:
//	               what other goroutines pass to the owner
//	accept.go      listener, strangers; connector.go: connections made or awaited
//	direct.go      connections with this process: requests without frames
//	config.go      Config
//	poller*.go     readiness of sockets: epoll, kqueue
//	silence_*.go   hosts that acknowledge nothing; ending their connections
//	sys_*.go       socket calls: Linux' without allocation, portable ones
//
// Uses run downward: endpoint; receiver and lane receiver; requester and responder;
// streams, lanes and completions; socket; frames. Errors that take an endpoint down are
// returned upward, as a failure.
//
// The package is written for Linux and tested there. macOS and FreeBSD use the same code
// with kqueue and the portable calls of package unix, which allocate; with the build tag
// rma_portable Linux uses these calls as well, so that they are tested. Elsewhere Open
// returns an error.
//
// Unit, two-process and hostile-input tests are beside the code; the contract is
// tested by fabric/fabrictest.
package tcp

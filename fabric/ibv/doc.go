// Package ibv is the link over RDMA devices: it implements package fabric by
// reliable-connection queue pairs of package verbs. It has no cgo of its own; if verbs is
// not available, [Open] returns an error that wraps fabric.ErrNotSupported and the reason.
//
// The package is a part of the engine below package rma, which opens it (internal/links).
// Applications use rma; the exported names may change in any release.
//
// # How the contract is kept
//
//   - One completion queue serves all endpoints of a link. It has room for every request and
//     receive that they can have outstanding, and is resized for each new endpoint, so that
//     it never overruns; if the device cannot resize it, NewEndpoint fails with
//     [ErrTooManyEndpoints].
//   - A request takes one slot of its endpoint's ring; a request of more pieces than the
//     device supports takes several, of which the last completes and notifies. At least one
//     request in every quarter of the ring asks the device for a completion even if the
//     caller did not, so that a ring of unsignalled requests drains; Poll does not report
//     these completions.
//   - Post writes a chain and crosses into C once for up to 64 requests.
//   - FlagNotify is a write with immediate. It consumes one of the empty receives posted at
//     the target ([recvDepth]), which Poll replenishes. The receives of a target that does
//     not poll run out: its device then asks ours to retry later, seven times ([rnrTimer]),
//     for half of the target's PeerTimeout. Then the request ends with StatusNotReady.
//   - The device detects that a peer is gone: it repeats a request for PeerTimeout
//     ([retries]) and gives up. A retry count of 7 means infinite retries on some devices
//     and is not used. An endpoint without outstanding requests detects nothing.
//   - The first failed completion takes the endpoint down: the queue pair is moved to the
//     error state, so that the device accesses no memory for requests still queued; then the
//     outstanding requests are reported, and later completions of this queue pair are
//     ignored. So every signalled request is reported exactly once, even on devices that
//     lose flushed completions.
//   - Asynchronous events of the device take endpoints down as well. Poll checks for them
//     when waking from sleep and every [asyncEvery] polls without completions, because the
//     check is a system call.
//
// # Connecting
//
// Address carries port, queue pair number, first packet number, MTU and the number of reads
// that this side serves at once. Connect moves the queue pair to the ready state and returns
// without waiting for the peer: if the peer's Connect is later than our first request, its
// device drops the packets, and ours repeats them after the first of its seven time-outs (a
// seventh of PeerTimeout). The first request is then slow, and if the peer is later than
// PeerTimeout, it fails. Callers should connect both sides before either posts
// (Caps.ConnectsAlone).
//
// # LastByteLast
//
// A responder places the packets of a write in order (InfiniBand requires it for requests of
// one queue pair), and adapters write the bytes of one packet with posted PCIe writes of
// ascending address, which stay in order unless the memory is registered for relaxed
// ordering, which this link never requests. rdma_rxe copies packet by packet with the
// processor. The specification promises neither, so the capability can be switched off:
// [Options.LastByteLast], which internal/links sets by RMA_IBV_LAST_BYTE.
//
// # What devices lack
//
// Open finds out by trying what the device cannot do: pieces and bytes inline by creating
// queue pairs, writes with immediate and the GID by writing to itself (probe.go). A device
// without writes with immediate notifies by a message behind the write; a device without
// atomics asks the peer's Poll for them by messages, one or several atomics at a time with
// nothing behind them (letter.go), and then has Caps.TargetProgress and Caps.AtomicCPU. So does
// one with atomics by [Options.HostAtomics], which loses no result with a queue pair. If
// fewer than 8 bytes may be inline, Post copies the payload. All three need registered memory
// for each endpoint. Connect refuses a peer whose device lacks other operations than this one
// (fabric.ErrBadAddress), and Open a device without RDMA reads ([ErrNoReads]).
//
// The entries of the GID table are tried in the order of verbs.GIDChoice.Candidates, each by
// a write to this port itself, until one works; this takes at most a second. If none does,
// the first is used, because not every device sends to itself; Link.Choice has the reasons.
//
// make zoo runs the tests on devices like other adapters, see docs/zoo.md.
//
// # rdma_rxe
//
// SoftRoCE breaks the rules of a reliable connection when packets are lost,
// repeated or reordered (packet traces of Linux 6.12; verbs/device_lossy_test.go
// shows the first three, docs/softroce.md tells more):
//
//  1. A fenced request that has to be retransmitted waits for reads and atomics that were
//     posted behind it, which wait for it: a deadlock. Therefore Post holds fenced requests
//     back itself, and takes no requests behind them, until the reads and atomics before
//     have completed; the device sees no fence.
//  2. An acknowledgement that arrives between the packets of a read completes it
//     successfully, with data missing.
//  3. A repeated write is acknowledged with the number of the atomic behind it, which
//     completes the atomic successfully, without its result.
//  4. A read whose answer was lost is refused or ignored if it, or the last executed
//     request, is empty.
//  5. Failures are counted until a packet is acknowledged, every 64 packets in a long write,
//     and the seventh ends the connection, even if data was delivered meanwhile.
//  6. Posting a request restarts the timer that would repeat those before it, so a side that
//     posts often enough never repeats lost packets.
//
// Post avoids 1 on every connection of such a device. Against the others, connections that
// leave the device are guarded ([Options.Guard] decides otherwise): reads are posted to the
// device in pieces of one packet, writes without notification in pieces of 16; empty
// requests become empty messages, which consume a receive of the target, as notifications
// do; an atomic is posted when no request is outstanding, and its result buffer holds a
// random word until it completes; and Post takes no request while nothing has completed for
// the device's time-out. If the random word is still there after completion, because a
// repeated write was delayed in the network for longer than the atomic took, the request
// fails with StatusUnknown and [VendorLostResult], and the endpoint goes down: the atomic
// has taken place, and its result is lost.
//
// Guarded reads of many packets are slower, atomics do not overlap, and a network that
// disturbs several packets in ten still ends writes with StatusPeerGone.
//
// # Files
//
//	options.go   Options, choosing device, port and GID; time-outs in the device's encodings
//	adapter.go   the port of a device: opening, its completion queue, creating queue pairs
//	link.go      Link: opening, closing, capabilities
//	probe.go     finding out what the device can do, and the GID that works
//	letter.go    what a device lacks, done by messages
//	region.go    registered memory
//	address.go   what peers exchange
//	endpoint.go  one queue pair: creating, connecting, going down
//	post.go      requests to the device
//	guard.go     what is different on rdma_rxe
//	split.go     reads in pieces of one packet
//	kept.go      requests kept for another queue pair
//	resume.go    another queue pair in place of one that failed: what is posted to it again
//	rejoin.go    how both sides agree on it; resumeletter.go: by which letters
//	spare.go     queue pairs over another port, on another device perhaps
//	carry.go     another link's endpoint in the place of the last one
//	poll.go      completions from it, in the seam's terms; sleeping on FD
//
// Imports verbs, fabric, fabric/internal/softlink, internal/offheap. Tests that
// need a device are in device_test.go, guard_test.go and death_test.go (two processes); see verbs
// for how they find it.
package ibv

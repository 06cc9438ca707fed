// Package ibv is the link over RDMA devices: reliable-connection queue pairs of
// package verbs behind the seam of package fabric. It has no cgo of its own;
// where verbs is not available [Open] returns an error that wraps
// fabric.ErrNotSupported and says why.
//
// # How the contract is kept
//
//   - One completion queue serves all endpoints of a link. It is sized for every
//     request and receive they can have outstanding, resized when an endpoint
//     comes, so that it never overruns; if the device cannot, NewEndpoint fails
//     with [ErrTooManyEndpoints].
//   - A request is one slot of its endpoint's ring, a request of more pieces than
//     the device takes several, of which the last completes and notifies. At
//     least every fourth of a ring one request asks the device for a completion
//     even if the caller did not, so that a ring of unsignalled requests makes
//     room again; Poll keeps such completions to itself.
//   - Post writes a chain and crosses into C once for up to 64 requests.
//   - FlagNotify is a write with immediate. It takes one of the empty receives
//     posted at the target ([recvDepth]) that Poll replenishes. A target that
//     does not poll runs out of them: its device then asks ours to try again
//     later, seven times ([rnrTimer]), for half of the target's PeerTimeout.
//     Then the request ends as StatusNotReady.
//   - A peer that is gone is noticed by the device: it repeats a request for
//     PeerTimeout ([retries]) and gives up. A retry count of 7 would mean for
//     ever on some devices and is not used. An endpoint without outstanding
//     requests notices nothing.
//   - The first failed completion takes the endpoint down: the queue pair is
//     moved to the error state, so that the device touches no memory on behalf
//     of what is still queued; then what is outstanding is reported, and what
//     the device says later about this queue pair is ignored. So every
//     signalled request is reported exactly once, even by devices that lose
//     flushed completions.
//   - Asynchronous events of the device take endpoints down as well. They are
//     looked for when waking from sleep and every [asyncEvery] polls without
//     completions, because looking is a system call.
//
// # Connecting
//
// Address carries port, queue pair number, first packet number, MTU and how many
// reads this side answers at once. Connect moves the queue pair to ready and
// returns without hearing from the peer: if the peer's Connect is later than our
// first request, its device drops the packets, and ours repeats them after the
// first of its seven time-outs (a seventh of PeerTimeout), so nothing is lost,
// but the first request is slow. Whoever carries the addresses should have both
// sides connect before either posts.
//
// # LastByteLast
//
// A responder places the packets of a write in order (InfiniBand requires it for
// requests of one queue pair), and adapters write the bytes of one packet with
// posted PCIe writes of ascending address, which stay in order as long as the
// memory is not registered for relaxed ordering, which this link never asks for.
// rdma_rxe copies packet by packet with the processor. Neither is promised by
// the specification, so it can be switched off: [Options.LastByteLast], which
// internal/links sets by RMA_IBV_LAST_BYTE.
//
// # rdma_rxe
//
// SoftRoCE breaks the rules of a reliable connection when packets are lost,
// repeated or reordered (packet traces of Linux 6.12; verbs/device_lossy_test.go
// shows the first three, docs/softroce.md tells more):
//
//  1. A request that is fenced and has to be sent again waits for reads and atomics
//     that were posted behind it, which wait for it. Nothing ends that. So Post
//     holds fenced requests back itself, taking nothing from them on, until the
//     reads and atomics before have completed; the device sees no fence.
//  2. An acknowledgement that arrives between the packets of a read ends it, as a
//     success, with data missing.
//  3. A repeated write is acknowledged with the number of the atomic behind it,
//     which ends the atomic, as a success, without its result.
//  4. A read whose answer was lost is refused or ignored when it, or what was
//     carried out last, is empty.
//  5. Failures are counted until something is acknowledged, every 64 packets in a
//     long write, and seven are too many, whatever was delivered meanwhile.
//  6. A request posted restarts the timer that would repeat those before it, so a
//     side that posts often enough never repeats what got lost.
//
// 1 is avoided on every connection of such a device. Against the others,
// connections that leave the device are guarded ([Options.Guard] decides
// otherwise): reads go to the device in pieces of one packet, writes without
// notification in pieces of 16; empty requests are
// empty messages, which take a receive of the target, as notifications do; an
// atomic is posted when nothing is outstanding, and the place of its result holds
// a random word until then; and Post takes nothing while nothing has completed for
// the device's time-out. If the word is still there afterwards, because a repeated
// write was held up in the network for longer than the atomic took, the request
// has failed with StatusUnknown and [VendorLostResult], and the endpoint is down:
// the atomic has happened, and what it returned is lost.
//
// Guarded reads of many packets are slower, atomics do not overlap, and a wire that
// disturbs several packets in ten still ends writes as StatusPeerGone.
//
// # Files
//
//	options.go   Options, choosing device, port and GID; time-outs in the device's encodings
//	link.go      Link: opening, closing, capabilities
//	region.go    registered memory
//	address.go   what peers exchange
//	endpoint.go  one queue pair: creating, connecting, going down
//	post.go      requests to the device
//	guard.go     what is different on rdma_rxe
//	split.go     reads in pieces of one packet
//	poll.go      completions from it, in the seam's terms; sleeping on FD
//
// Imports verbs, fabric, fabric/internal/softlink, internal/offheap. Tests that
// need a device are in device_test.go, guard_test.go and death_test.go (two processes); see verbs
// for how they find it.
package ibv

//go:build linux || darwin || freebsd

package tcp

import (
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
)

// Lanes are further connections to the same peer, for the payload of large
// requests: what is small or urgent never queues behind it, neither here nor in
// the kernel, and several lanes together may be faster than one.
//
// A large write, and the answer to a large read, is announced on the endpoint's
// first connection by its header alone. Its payload comes on the lanes, in frames
// of op opBulk, in any order and on any of them, received straight into its place.
// A lane is looked at only while something announced has not come, so idle
// lanes cost nothing.
//
// The order of requests is that of the first connection: requests behind a
// write whose payload is on its way wait there, at the target (rx.held); answers,
// acknowledgements and refusals do not. Answers to reads have no order with
// requests, so nothing waits for them.

const (
	// stripe is how much of a request goes to one of several lanes at a time.
	stripe = 512 << 10

	// maxTransfers bounds the requests whose payload has been announced and not
	// sent; a lane is busy with one or two.
	maxTransfers = 64

	// maxFrames is how many frames share a send, so that segments are full where
	// one request ends and the next begins.
	maxFrames = 8

	// laneGrace is how long a lane's end waits for the first connection's, which
	// says why: a peer that closes its endpoint ends them in any order.
	laneGrace = 100 * time.Millisecond
)

// LaneError is the end of an endpoint that lost one of its lanes.
type LaneError struct {
	Lane int // from 1; 0 is the first connection
	Err  error
}

func (e *LaneError) Error() string {
	return fmt.Sprintf("tcp: connection %d of the peer: %v", e.Lane, e.Err)
}

// Unwrap makes it fabric.ErrPeerGone and the system's error.
func (e *LaneError) Unwrap() []error { return []error{fabric.ErrPeerGone, e.Err} }

// transfer is payload of this side that was announced.
type transfer struct {
	addr   uint64 // of an answer
	n      uint32 // bytes
	given  uint32 // of those, given to lanes
	unsent uint32 // of all, not taken by a socket yet
	seq    uint32
	sge    uint32 // of a write: piece and place in it where the next frame begins
	off    uint32
	rkey   uint32 // of an answer
	reply  bool
}

// frame is a piece of a transfer on its way through a lane.
type frame struct {
	addr uint64 // of an answer, where the next byte is
	left uint32 // bytes
	of   uint32 // number of the transfer
	sge  uint32 // of a write: where the next byte is
	off  uint32
	at   int // bytes of hdr that are sent
	hdr  [headerSize]byte
}

// lane is one connection.
type lane struct {
	socket
	stalled bool // in holds a frame that nothing announced yet

	// Frames being sent, the oldest at head: as many as one send takes.
	frames     [maxFrames]frame
	head, tail uint32

	// The frame being received: its header, as far as it has come, and the bytes
	// of it that have not.
	in     header
	inBuf  [headerSize]byte
	inHave int
	inLeft uint32
}

// bulk is an endpoint's lanes.
type bulk struct {
	lanes []lane
	min   uint32 // payload of that size goes by them
	tune  tuner

	out        []transfer // maxTransfers
	head, tail uint32

	expect int // announced by the peer, and incomplete
	reads  int // answers among them

	// again: something was announced that a lane may hold already; no event says so.
	again bool

	// The peer's write that is coming, if on.
	on   bool
	h    header
	left uint32
	word [8]byte // its last word, if that is to be stored at once
	last uint32  // 8 in that case, else 0

	err   error // a lane is dead
	since time.Time
}

// takes reports whether payload of n bytes goes by a lane.
func (b *bulk) takes(n uint32) bool { return len(b.lanes) != 0 && n >= b.min }

// takesSlot reports whether the payload of a write does. Inline payload is in no
// pieces, and small.
func (b *bulk) takesSlot(s *slot) bool { return b.takes(s.n) && s.flags&fabric.FlagInline == 0 }

func (b *bulk) full() bool { return b.tail-b.head == maxTransfers }

func (b *bulk) add(t transfer) {
	t.unsent = t.n
	b.out[b.tail%maxTransfers] = t
	b.tail++
}

// ackable reports whether the peer can have executed all requests before seq: not
// while payload of one of them is here.
func (b *bulk) ackable(seq uint32) bool {
	for i := b.head; i != b.tail; i++ {
		if t := &b.out[i%maxTransfers]; !t.reply && t.unsent != 0 {
			return int32(seq-t.seq) <= 0
		}
	}
	return true
}

// canSend reports whether a lane may have something to do.
func (b *bulk) canSend() bool {
	if b.head == b.tail || b.err != nil {
		return false
	}
	for i := range b.lanes {
		if ln := &b.lanes[i]; !ln.blocked && (ln.head != ln.tail || b.next() != nil) {
			return true
		}
	}
	return false
}

// next is the transfer of which something is still to be given to a lane.
func (b *bulk) next() *transfer {
	for i := b.head; i != b.tail; i++ {
		if t := &b.out[i%maxTransfers]; t.given < t.n {
			return t
		}
	}
	return nil
}

// wanted is what the lane is watched for.
func (b *bulk) wanted(ln *lane) (w watch) {
	if b.err != nil {
		return 0
	}
	if b.expect != 0 && !ln.stalled {
		w |= watchIn
	}
	if ln.blocked {
		w |= watchOut
	}
	return w
}

// laneFailed notes the end of a lane. What the first connection says about it
// counts, if it says so soon.
func (e *endpoint) laneFailed(ln *lane, why error) {
	b := &e.bulk
	if b.err != nil {
		return
	}
	for i := range b.lanes {
		if ln == &b.lanes[i] {
			b.err, b.since = &LaneError{Lane: i + 1, Err: why}, time.Now()
		}
	}
	e.unwatchLanes() // what they still say is of no interest
}

// laneOver takes the endpoint down for a dead lane. Class: setup.
func (e *endpoint) laneOver() {
	if time.Since(e.bulk.since) > laneGrace {
		e.fail(fabric.StatusPeerGone, e.bulk.err)
	}
}

// close closes the lanes.
func (b *bulk) close() {
	for i := range b.lanes {
		b.lanes[i].close()
	}
	*b = bulk{}
}

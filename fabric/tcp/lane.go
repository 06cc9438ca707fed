//go:build linux || darwin || freebsd

package tcp

import (
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
)

// Lanes are further connections to the same peer, for the payload of large
// requests: small or urgent frames never queue behind it, neither here nor in
// the kernel, and several lanes together may be faster than one.
//
// A large write, and the answer to a large read, is announced on the endpoint's
// first connection by its header alone. Its payload comes on the lanes, in frames
// of op opBulk, in any order and on any of them, received straight into its place.
// A lane is polled only while something announced has not come, so idle lanes cost
// nothing.
//
// The order of requests is that of the first connection: requests behind a
// write whose payload is on its way wait there, at the target (incoming.held); answers,
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
	piece  uint32 // of a write: piece and place in it where the next frame begins
	off    uint32
	rkey   uint32 // of an answer
	reply  bool
}

// laneFrame is a part of a transfer on its way through a lane.
type laneFrame struct {
	addr  uint64 // of an answer, where the next byte is
	left  uint32 // bytes
	of    uint32 // number of the transfer
	piece uint32 // of a write: where the next byte is
	off   uint32
	at    int // bytes of hdr that are sent
	hdr   [headerSize]byte
}

// lane is one connection.
type lane struct {
	socket
	stalled bool // in holds a frame that nothing announced yet

	// Frames being sent, the oldest at head: as many as one send takes.
	frames     [maxFrames]laneFrame
	head, tail uint32

	// The frame being received: its header, as far as it has come, and the bytes
	// of it that have not.
	in     header
	inBuf  [headerSize]byte
	inHave int
	inLeft uint32
}

// lanes is an endpoint's lanes, and the payload that they are to send.
type lanes struct {
	mem  *memory
	own  *pieces // of this side's requests
	all  []lane
	min  uint32 // payload of that size goes by them
	mss  int    // of the path
	tune tuner

	out        []transfer // maxTransfers
	head, tail uint32

	expected int // announced by the peer, and incomplete

	// again: something was announced that a lane may hold already; no event says so.
	again bool

	err   error // a lane is dead
	since time.Time
}

// init gives the endpoint its lanes.
func (b *lanes) init(socks []socket, atLeast, mss int) {
	b.min, b.mss = uint32(min(uint64(atLeast), maxMessage)), mss
	if len(socks) == 0 {
		return
	}
	b.out = make([]transfer, maxTransfers)
	b.all = make([]lane, len(socks))
	for i, s := range socks {
		b.all[i] = lane{socket: s}
	}
}

// close closes the lanes.
func (b *lanes) close() {
	for i := range b.all {
		b.all[i].close()
	}
	*b = lanes{}
}

func (b *lanes) none() bool { return len(b.all) == 0 }

// takes reports whether payload of n bytes goes by a lane.
func (b *lanes) takes(n uint32) bool { return len(b.all) != 0 && n >= b.min }

// announced notes that payload may come now.
func (b *lanes) announced() {
	b.expected++
	for i := range b.all {
		ln := &b.all[i]
		b.again = b.again || ln.stalled || ln.more()
		ln.stalled = false
	}
}

// arrived notes that the payload of one announcement has come, or is not wanted.
func (b *lanes) arrived() { b.expected-- }

// stuck reports that every lane holds payload that is not announced. On one lane
// payload comes in the order of the announcements, so while a write is incomplete, and
// the first connection waits for it, its payload cannot be behind all of that.
func (b *lanes) stuck() bool {
	for i := range b.all {
		if !b.all[i].stalled {
			return false
		}
	}
	return true
}

// watch has the poller report what the lanes are waiting for. They are in it
// only while that is anything.
func (b *lanes) watch() {
	for i := range b.all {
		ln := &b.all[i]
		if err := ln.watch(b.wanted(ln)); err != nil {
			b.fail(ln, err)
			return
		}
	}
}

// wanted is what the lane is watched for.
func (b *lanes) wanted(ln *lane) (w watch) {
	if b.err != nil {
		return 0
	}
	if b.expected != 0 && !ln.stalled {
		w |= watchIn
	}
	if ln.blocked {
		w |= watchOut
	}
	return w
}

// unwatch takes them out of the poller until the next watch.
func (b *lanes) unwatch() {
	for i := range b.all {
		_ = b.all[i].watch(0)
	}
}

// fail notes the end of a lane. What the first connection says about it
// counts, if it says so soon.
func (b *lanes) fail(ln *lane, why error) {
	if b.err != nil {
		return
	}
	for i := range b.all {
		if ln == &b.all[i] {
			b.err, b.since = &LaneError{Lane: i + 1, Err: why}, time.Now()
		}
	}
	b.unwatch() // what they still say is of no interest
}

// lost is the failure of an endpoint with a dead lane, nil until it is time.
func (b *lanes) lost() *failure {
	if b.err == nil || time.Since(b.since) <= laneGrace {
		return nil
	}
	return &failure{fabric.StatusPeerGone, b.err}
}

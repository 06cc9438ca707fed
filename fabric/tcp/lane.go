//go:build linux || darwin || freebsd

package tcp

import (
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
)

// Lanes are additional connections to the same peer, for the payload of large requests:
// small or urgent frames never queue behind it, neither here nor in the kernel, and several
// lanes together may be faster than one.
//
// A large write, and the answer to a large read, is announced on the endpoint's first
// connection by its header alone. Its payload is sent on the lanes, in frames of op opBulk,
// in any order and on any of them, and received directly into place. A lane is polled only
// while announced payload is missing, so idle lanes cost nothing.
//
// The order of requests is that of the first connection: requests behind a write whose
// payload is in flight wait there, at the target (incoming.held); answers, acknowledgements
// and refusals do not. Answers to reads have no order relative to requests, so nothing
// waits for them.

const (
	// stripe is the size of the parts of a request that are distributed over several lanes.
	stripe = 512 << 10

	// maxTransfers bounds the requests whose payload has been announced and not sent; one
	// or two keep a lane busy.
	maxTransfers = 64

	// maxFrames is the number of frames that share a send, so that segments are full where
	// one request ends and the next begins.
	maxFrames = 8

	// laneGrace is how long the end of a lane waits for the end of the first connection,
	// which contains the reason: a peer that closes its endpoint ends them in any order.
	laneGrace = 100 * time.Millisecond
)

// LaneError reports the end of an endpoint that lost one of its lanes.
type LaneError struct {
	Lane int // from 1; 0 is the first connection
	Err  error
}

func (e *LaneError) Error() string {
	return fmt.Sprintf("tcp: connection %d of the peer: %v", e.Lane, e.Err)
}

// Unwrap returns fabric.ErrPeerGone and the system's error.
func (e *LaneError) Unwrap() []error { return []error{fabric.ErrPeerGone, e.Err} }

// transfer is announced payload of this side.
type transfer struct {
	addr   uint64 // of an answer
	n      uint32 // bytes
	given  uint32 // bytes assigned to lanes
	unsent uint32 // bytes that no socket has taken
	seq    uint32
	piece  uint32 // of a write: piece and offset in it of the next frame
	off    uint32
	rkey   uint32 // of an answer
	reply  bool
}

// laneFrame is a part of a transfer in flight on a lane.
type laneFrame struct {
	addr  uint64 // of an answer: address of the next byte
	left  uint32 // bytes
	of    uint32 // number of the transfer
	piece uint32 // of a write: place of the next byte
	off   uint32
	at    int // bytes of hdr that are sent
	hdr   [headerSize]byte
}

// lane is one connection.
type lane struct {
	socket
	stalled bool // in is a frame that is not announced yet

	// Frames being sent, the oldest at head: as many as one send takes.
	frames     [maxFrames]laneFrame
	head, tail uint32

	// The frame being received: its header, as far as it has arrived, and the number of its
	// bytes that have not.
	in     header
	inBuf  [headerSize]byte
	inHave int
	inLeft uint32
}

// lanes holds an endpoint's lanes, and the payload that they have to send.
type lanes struct {
	mem  *memory
	own  *pieces // of this side's requests
	all  []lane
	min  uint32 // payload from this size uses the lanes
	mss  int    // of the path
	tune tuner

	out        []transfer // maxTransfers
	head, tail uint32

	expected int // transfers announced by the peer, and incomplete

	// again: a lane may hold payload that has just been announced; no event reports that.
	again bool

	err   error // a lane has failed
	since time.Time
}

// init sets the endpoint's lanes.
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

// takes reports whether payload of n bytes uses a lane.
func (b *lanes) takes(n uint32) bool { return len(b.all) != 0 && n >= b.min }

// announced records that payload may arrive now.
func (b *lanes) announced() {
	b.expected++
	for i := range b.all {
		ln := &b.all[i]
		b.again = b.again || ln.stalled || ln.more()
		ln.stalled = false
	}
}

// arrived records that the payload of one announcement has arrived, or is not needed.
func (b *lanes) arrived() { b.expected-- }

// stuck reports that every lane holds payload that is not announced. On one lane payload
// has the order of the announcements, so while a write is incomplete, and the first
// connection waits for it, its payload cannot be behind all of that.
func (b *lanes) stuck() bool {
	for i := range b.all {
		if !b.all[i].stalled {
			return false
		}
	}
	return true
}

// watch makes the poller report the events that the lanes wait for. They are in it only
// while they wait.
func (b *lanes) watch() {
	for i := range b.all {
		ln := &b.all[i]
		if err := ln.watch(b.wanted(ln)); err != nil {
			b.fail(ln, err)
			return
		}
	}
}

// wanted returns the events that the lane is watched for.
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

// unwatch removes the lanes from the poller until the next watch.
func (b *lanes) unwatch() {
	for i := range b.all {
		_ = b.all[i].watch(0)
	}
}

// fail records the end of a lane. The reason from the first connection takes precedence if
// it arrives soon.
func (b *lanes) fail(ln *lane, why error) {
	if b.err != nil {
		return
	}
	for i := range b.all {
		if ln == &b.all[i] {
			b.err, b.since = &LaneError{Lane: i + 1, Err: why}, time.Now()
		}
	}
	b.unwatch() // no more data is read from them
}

// lost returns the failure of an endpoint with a failed lane, or nil until laneGrace has
// passed.
func (b *lanes) lost() *failure {
	if b.err == nil || time.Since(b.since) <= laneGrace {
		return nil
	}
	return &failure{fabric.StatusPeerGone, b.err, true}
}

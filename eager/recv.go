package eager

import (
	"encoding/binary"
	"fmt"

	"github.com/seed33544411/rma/flowctl"
)

// receiver is the incoming direction of a channel: the ring that the peer writes.
type receiver struct {
	in      []byte // cells and ring, written by the peer
	rx      flowctl.Receiver
	rxRing  ring
	cur     message
	lease   uint64 // odd while a lease is open; incremented again when it ends
	end     uint32 // where the next message ends in its block: before others, or at the end
	lapMode bool   // the ring uses ModeLap
	corrupt bool   // the contents of the ring are not trustworthy
	*core
	cells *[ringStart]byte // of the first ring; written by the peer
	left  uint64           // end of the messages that may be received after a failure, see Drain; 0: none
}

// Head describes a message that has arrived.
type Head struct {
	Meta    uint64
	Len     int // bytes of payload
	Kind    uint8
	HasMeta bool
}

// message is the checked description of the message at the reader's cursor.
type message struct {
	Head
	k    int  // blocks, 0: no message
	fill int  // bytes before the trailer of the first block
	run  int  // bytes of payload behind the first block
	more bool // another one may follow in the block; also of a message that only Short has found
}

// Peek looks for the next message without receiving it.
//
// Hot path.
func (rc *receiver) Peek() (h Head, ok bool, err error) {
	if rc.lease&1 != 0 {
		return h, false, ErrLeased
	}
	if rc.cur.k == 0 {
		if ok, err := rc.find(); !ok {
			return h, false, err
		}
	}
	return rc.cur.Head, true, nil
}

// Found reports whether Peek has found a message that has not been received.
//
// Hot path.
func (rc *receiver) Found() bool { return rc.cur.k != 0 }

// find looks for a message at the reader's cursor and checks it.
//
// Hot path.
func (rc *receiver) find() (bool, error) {
	if rc.err != nil && rc.left == 0 {
		return false, rc.err
	}
	r := &rc.rxRing
	pos := rc.rx.Next()
	have := int(r.Blocks)
	if rc.left != 0 && int64(rc.left-pos) <= 0 {
		return false, nil
	}
	if !rc.lapMode {
		w := load64(rc.in, cursorCell)
		if w == 0 { // a ring begins at a position that is 0 or high
			return false, nil
		}
		var err error
		if have, err = rc.rx.Arrived(w); err != nil {
			return false, rc.distrust(err)
		}
		if have == 0 {
			return false, nil
		}
	}
	t, at := rc.trailer(pos)
	if t == 0 && rc.end != r.size {
		if rc.leaveShared(pos) {
			return rc.find()
		}
		return false, nil
	}
	if lap := r.Lap(pos); t.lap() != lap {
		if rc.lapMode && t.lap() == lap-1 && rc.end == r.size {
			return false, nil
		}
		return false, rc.distrust(&BlockError{Pos: pos, Word: uint64(t), Reason: "wrong lap"})
	}
	m, why := r.parse(t)
	if why == "" && (m.more || rc.end != r.size) && !rc.shares(&m, t) {
		why = "message that cannot share a block"
	}
	if why != "" {
		return false, rc.distrust(&BlockError{Pos: pos, Word: uint64(t), Reason: why})
	}
	if m.k > have {
		return false, rc.distrust(&BlockError{Pos: pos, Word: uint64(t), Reason: "message longer than what was announced"})
	}
	if m.HasMeta {
		m.Meta = binary.LittleEndian.Uint64(rc.in[at-metaSize:])
	}
	rc.cur = m
	if t.flags()&flagRing != 0 {
		if why := rc.aside(m.Kind, m.k == 1 && !m.HasMeta, rc.segment(0)); why != "" {
			rc.cur.k = 0
			return false, rc.distrust(&BlockError{Pos: pos, Word: uint64(t), Reason: why})
		}
		return rc.findBehind()
	}
	return true, nil
}

// trailer loads the trailer of the next message, in block pos, and returns where it lies.
//
// Hot path.
func (rc *receiver) trailer(pos uint64) (t trailer, at int) {
	at = ringStart + rc.rxRing.offset(pos) + int(rc.end) - trailerSize
	return trailer(load64(rc.in, at)), at
}

// shares reports whether a message may lie in a block with others.
func (rc *receiver) shares(m *message, t trailer) bool {
	need := m.fill + trailerSize
	if m.more {
		need += trailerSize // of the next message
	}
	return rc.lapMode && rc.rxRing.Every > 1 && m.k == 1 && t.flags()&flagRing == 0 && need <= int(rc.end)
}

// begun reports whether the peer has written a message to block pos.
//
// Hot path.
func (rc *receiver) begun(pos uint64) bool {
	r := &rc.rxRing
	return trailer(load64(rc.in, ringStart+r.offset(pos)+r.room())).lap() != r.Lap(pos)-1
}

// leaveShared frees block pos, of which all messages so far are consumed, if the peer has gone on
// to the next one. It returns true as well if there is another message in it after all.
func (rc *receiver) leaveShared(pos uint64) bool {
	if !rc.begun(pos + 1) {
		return false
	}
	if t, _ := rc.trailer(pos); t == 0 { // written before the next block
		rc.free(1)
	}
	return true
}

// took ends the reading of a message of k blocks, which takes n bytes of the first one. That
// stays the next block if others may follow in it.
func (rc *receiver) took(k int, n uint32) {
	if rc.cur.more {
		rc.end -= n
		rc.rx.Part()
		return
	}
	rc.free(k)
}

// free frees the next k blocks.
func (rc *receiver) free(k int) {
	rc.rx.Consume(k)
	if rc.end != rc.rxRing.size {
		rc.end = rc.rxRing.size
	}
}

// reached returns a number that changes with every message received.
func (rc *receiver) reached() uint64 { return rc.rx.Next()<<24 | uint64(rc.end) }

// findBehind is find after a message of the channel itself. A peer sends a few of them in
// sequence at most.
func (rc *receiver) findBehind() (ok bool, err error) {
	const most = 16
	if rc.rz.asides++; rc.rz.asides > most {
		return false, rc.distrust(fmt.Errorf("%w: %d messages about rings in sequence", ErrCorrupt, most))
	}
	ok, err = rc.find()
	rc.rz.asides = 0
	return ok, err
}

// parse decodes the trailer of a first block. why is the reason why it is invalid.
func (r *ring) parse(t trailer) (m message, why string) {
	f := t.flags()
	switch {
	case f&^flagsKnown != 0:
		return m, "unknown flags"
	case f&flagFirst == 0:
		return m, "message does not begin with its first block"
	}
	m.Kind, m.HasMeta, m.more = t.kind(), f&flagMeta != 0, f&flagMore != 0
	m.k, m.fill = r.split(uint64(t.length()), m.HasMeta)
	switch {
	case m.k > int(r.most):
		return m, "length beyond what the ring may carry"
	case (m.k == 1) != (f&flagLast != 0):
		return m, "last flag contradicts the length"
	}
	m.Len = int(t.length())
	if m.k > 1 {
		if m.run = m.Len - m.fill; m.HasMeta {
			m.run += metaSize
		}
	}
	return m, ""
}

// distrust ends the channel because of data that the peer has written into the ring.
func (rc *receiver) distrust(err error) error {
	rc.corrupt, rc.left = true, 0
	return rc.fail(err)
}

// segments returns the number of parts of the current message: the part in its first block,
// the run, and the rest of the run from the start of the ring.
func (rc *receiver) segments() int {
	m := &rc.cur
	if m.k <= 1 {
		return m.k
	}
	if _, whole := rc.rxRing.runs(rc.rx.Next(), m.run); whole < m.run {
		return 3
	}
	return 2
}

// segment returns part i of the current message.
func (rc *receiver) segment(i int) []byte {
	r, m := &rc.rxRing, &rc.cur
	ring := rc.in[ringStart:]
	if i == 0 {
		n := m.Len - m.run
		block := ring[r.offset(rc.rx.Next()):][:r.size]
		return block[int(rc.end)-trailerSize-m.fill:][:n:n]
	}
	at, whole := r.runs(rc.rx.Next(), m.run)
	if i == 1 {
		return ring[at : at+whole : at+whole]
	}
	n := m.run - whole
	return ring[:n:n]
}

// mark writes a mark in place of the trailer into each block after the first, so that the
// next lap finds a valid word of this lap and not payload. The stores precede the credit
// that lets the peer write there again.
//
// Hot path.
func (rc *receiver) mark() {
	r := &rc.rxRing
	pos := rc.rx.Next()
	for i := 1; i < rc.cur.k; i++ {
		p := pos + uint64(i)
		binary.LittleEndian.PutUint64(rc.in[ringStart+r.offset(p)+r.room():], uint64(makeTrailer(0, 0, 0, r.Lap(p))))
	}
}

// endLease ends the open lease, if there is one.
func (rc *receiver) endLease() { rc.lease = (rc.lease + 1) &^ 1 }

// Waiting reports whether Peek would return a message or an error. If there is none, it
// costs one load.
//
// Hot path.
func (rc *receiver) Waiting() bool {
	if rc.cur.k != 0 || !rc.lapMode || !rc.live {
		return true
	}
	pos := rc.rx.Next()
	if rc.end == rc.rxRing.size {
		return rc.begun(pos)
	}
	t, _ := rc.trailer(pos)
	return t != 0 || rc.begun(pos+1)
}

// Mode returns how the incoming ring announces messages.
func (rc *receiver) Mode() Mode {
	if rc.lapMode {
		return ModeLap
	}
	return ModeCursor
}

// Withhold stops or resumes returning credit for received messages. While it is on, the
// peer can send only what the ring has room for now, however much is received.
func (rc *receiver) Withhold(on bool) { rc.rx.Withhold(on) }

// Drain ends sending and lets Peek, Recv and Lease continue with the messages that the peer
// had sent before the channel failed: nothing is posted any longer, not even credit. It
// returns false if the ring itself has failed or is closed.
func (rc *receiver) Drain() bool {
	rc.live, rc.open = false, false
	if rc.left == 0 && !rc.corrupt && !rc.closed {
		rc.left = rc.rx.Next() + uint64(rc.rxRing.Blocks) // a correct peer has written no more
	}
	return rc.left != 0
}

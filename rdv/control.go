package rdv

import (
	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/flowctl"
)

// ctl is an answer that waits for room in the ring.
type ctl struct {
	kind Kind
	id   ID
	arg  uint32
}

// ctlQueue is a FIFO of fixed capacity. Every slot of the channel owns a bounded
// number of its places, so that it cannot overflow: consuming what the peer
// sends never waits for sending.
type ctlQueue struct {
	q       []ctl
	head, n int
}

func (q *ctlQueue) init(capacity int) { q.q = make([]ctl, capacity) }

func (q *ctlQueue) push(x ctl) {
	if q.n == len(q.q) {
		panic("rdv: more answers than slots") // our bug, whatever the peer does
	}
	q.q[(q.head+q.n)%len(q.q)] = x
	q.n++
}

func (q *ctlQueue) pop() {
	q.head = (q.head + 1) % len(q.q)
	q.n--
}

// send puts a control message into the ring; false: no room. It goes out with the
// others of the same Progress or Flush, in one post.
func (c *Channel) send(k Kind, id ID, arg uint32, payload []byte) bool {
	res, err := c.ring.Stage(eager.Envelope{Meta: meta(id, arg), HasMeta: true, Kind: uint8(k), Class: flowctl.Control}, payload)
	if err != nil {
		c.fail(err)
		return false
	}
	return res == eager.Accepted
}

// flushControl sends the answers that wait. Short path.
func (c *Channel) flushControl() bool {
	did := false
	for c.live && c.control.n > 0 {
		x := c.control.q[c.control.head]
		if x.kind == KindAck { // the newest count will do
			x.arg = c.in[x.id.slot()].fetched
		}
		payload := c.note[:0] // not c.payload, which callers have filled
		if x.kind == KindDone {
			w := &c.theirs[x.id.slot()].want
			payload = appendDone(payload, doneNote{w.Pos, w.Tag})
		}
		if x.kind == KindFIN && x.arg == statusRefused {
			payload = appendRefused(payload, c.in[x.id.slot()].msgs)
		}
		if !c.send(x.kind, x.id, x.arg, payload) {
			return did
		}
		c.control.pop()
		switch x.kind {
		case KindFIN:
			c.freeIncoming(&c.in[x.id.slot()])
		case KindAck:
			c.in[x.id.slot()].acking = false
		case KindDone, KindDecline:
			c.theirs[x.id.slot()].state = theirsFree
		case KindRevoke:
			c.Nudge()
		}
		did = true
	}
	return did
}

// receiveBatch bounds the control messages taken in one Progress.
const receiveBatch = 32

// receive takes control messages. Short path.
func (c *Channel) receive() bool {
	did := false
	for range receiveBatch {
		if !c.live {
			break
		}
		h, ok, err := c.ring.Recv(c.messages)
		if err != nil {
			if c.ring.Err() == nil { // longer than any legal one
				err = &ProtocolError{Kind(h.Kind), 0, ErrMessage, uint64(h.Len), uint64(len(c.messages))}
			}
			c.fail(err)
			break
		}
		if !ok {
			break
		}
		did = true
		if err := c.dispatch(h, c.messages[:h.Len]); err != nil {
			c.fail(err)
		}
	}
	return did
}

// dispatch acts on one control message of the peer. Short path.
func (c *Channel) dispatch(h eager.Head, payload []byte) error {
	k, id, arg := Kind(h.Kind), ID(h.Meta), uint32(h.Meta>>32)
	if !h.HasMeta {
		return &ProtocolError{k, 0, ErrMessage, 0, 0}
	}
	switch k { // those with a payload
	case KindRTS:
		return c.onRTS(id, arg, payload)
	case KindOffer:
		return c.onOffer(id, arg, payload)
	case KindChunk:
		return c.onChunk(id, payload)
	case KindAdvert:
		return c.onAdvert(id, arg, payload)
	case KindDone:
		return c.onDone(id, arg, payload)
	case KindFIN:
		return c.onFIN(id, arg, payload)
	}
	if len(payload) != 0 {
		return &ProtocolError{k, id, ErrMessage, uint64(len(payload)), 0}
	}
	switch k {
	case KindReady:
		return c.onReady(id)
	case KindAck:
		return c.onAck(id, arg)
	case KindDecline:
		return c.onDecline(id, arg)
	case KindRevoke:
		return c.onRevoke(id)
	}
	return &ProtocolError{k, id, ErrMessage, uint64(k), uint64(numKinds)}
}

// Nudge has the peer notified behind what was handed over so far: for who waits for
// its answer to an advert. A peer that has nothing to do with this side need not look
// at what comes from it otherwise. Goes out with the next Flush or Progress. Short
// path.
func (c *Channel) Nudge() { c.ring.Nudge() }

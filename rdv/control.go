package rdv

import "github.com/seed33544411/rma/eager"

// flushAnswers sends waiting answers while the ring has room.
//
// Hot path.
func (c *Channel) flushAnswers() bool {
	did := false
	for c.live && c.answers.Len() > 0 {
		var sent bool
		switch x := *c.answers.Front(); x.kind {
		case KindDone, KindDecline, KindPlaced:
			sent = c.source.sendAnswer(x)
		default:
			sent = c.sink.sendAnswer(x)
		}
		if !sent {
			break
		}
		c.answers.Pop()
		did = true
	}
	return did
}

// receiveBatch bounds the control messages that one Progress processes.
const receiveBatch = 32

// firstMessage reports whether there is anything to receive. If so, it allocates the memory for
// payloads.
func (c *Channel) firstMessage() bool {
	if _, ok, err := c.ring.Peek(); !ok && err == nil {
		return false
	}
	c.messages = make([]byte, max(c.opt.bounds().MaxSize(), 64))
	return true
}

// receive processes control messages.
//
// Hot path.
func (c *Channel) receive() bool {
	did := false
	if c.messages == nil && !c.firstMessage() {
		return false
	}
	for range receiveBatch {
		if !c.live {
			break
		}
		h, ok, err := c.ring.Recv(c.messages)
		if err != nil {
			if c.ring.Err() == nil { // longer than any valid one
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

// dispatch handles one control message of the peer.
//
// Hot path.
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
	case KindCTS:
		return c.onCTS(id, payload)
	case KindShare:
		return c.onShare(id, arg, payload)
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
	case KindPlaced:
		return c.onPlaced(id)
	case KindFilled:
		return c.onFilled(id)
	}
	return &ProtocolError{k, id, ErrMessage, uint64(k), uint64(numKinds)}
}

package eager

import (
	"encoding/binary"
	"fmt"
)

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
	k    int // blocks, 0: none
	fill int // bytes before the trailer of the first block
	run  int // bytes of payload behind the first block
}

// Peek looks for the next message without taking it. Short path.
func (c *Channel) Peek() (h Head, ok bool, err error) {
	if c.lease&1 != 0 {
		return h, false, ErrLeased
	}
	if c.cur.k == 0 {
		if ok, err := c.find(); !ok {
			return h, false, err
		}
	}
	return c.cur.Head, true, nil
}

// Found reports whether Peek has found a message that has not been taken. Short path.
func (c *Channel) Found() bool { return c.cur.k != 0 }

// Recv copies the next message to dst and gives its blocks free. ok is false
// if there is none. A dst shorter than the message is ErrShortBuffer, and the
// message stays. Short path.
func (c *Channel) Recv(dst []byte) (h Head, ok bool, err error) {
	h, ok, err = c.Peek()
	if !ok {
		return h, false, err
	}
	if len(dst) < h.Len {
		return h, false, fmt.Errorf("receive %d bytes into %d: %w", h.Len, len(dst), ErrShortBuffer)
	}
	n := 0
	for i := range c.segments() {
		n += copy(dst[n:], c.segment(i))
	}
	c.consume()
	return h, true, nil
}

// find looks for a message at the reader's cursor and checks it. Short path.
func (c *Channel) find() (bool, error) {
	if c.err != nil && c.left == 0 {
		return false, c.err
	}
	r := &c.rxRing
	pos := c.rx.Next()
	have := int(r.Blocks)
	if c.left != 0 && int64(c.left-pos) <= 0 {
		return false, nil
	}
	if !c.lapMode {
		var err error
		if have, err = c.rx.Arrived(load64(c.in, cursorCell)); err != nil {
			return false, c.distrust(err)
		}
		if have == 0 {
			return false, nil
		}
	}
	at := ringStart + r.offset(pos) + r.room()
	t := trailer(load64(c.in, at))
	if lap := r.Lap(pos); t.lap() != lap {
		if c.lapMode && t.lap() == lap-1 {
			return false, nil
		}
		return false, c.distrust(&BlockError{Pos: pos, Word: uint64(t), Reason: "wrong lap"})
	}
	m, why := r.parse(t)
	if why != "" {
		return false, c.distrust(&BlockError{Pos: pos, Word: uint64(t), Reason: why})
	}
	if m.k > have {
		return false, c.distrust(&BlockError{Pos: pos, Word: uint64(t), Reason: "message longer than what was announced"})
	}
	if m.HasMeta {
		m.Meta = binary.LittleEndian.Uint64(c.in[at-metaSize:])
	}
	c.cur = m
	return true, nil
}

// parse reads the trailer of a first block. why says what is wrong.
func (r *ring) parse(t trailer) (m message, why string) {
	f := t.flags()
	switch {
	case f&^flagsKnown != 0:
		return m, "unknown flags"
	case f&flagFirst == 0:
		return m, "message does not begin with its first block"
	}
	m.Kind, m.HasMeta = t.kind(), f&flagMeta != 0
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

// distrust ends the channel because of what the peer has written into the ring.
func (c *Channel) distrust(err error) error {
	c.corrupt, c.left = true, 0
	return c.fail(err)
}

// segments is in how many parts the current message lies: what is in its first
// block, the run, the rest of the run from the start of the ring.
func (c *Channel) segments() int {
	m := &c.cur
	if m.k <= 1 {
		return m.k
	}
	if _, whole := c.rxRing.runs(c.rx.Next(), m.run); whole < m.run {
		return 3
	}
	return 2
}

// segment is part i of the current message.
func (c *Channel) segment(i int) []byte {
	r, m := &c.rxRing, &c.cur
	ring := c.in[ringStart:]
	if i == 0 {
		n := m.Len - m.run
		block := ring[r.offset(c.rx.Next()):][:r.size]
		return block[r.room()-m.fill:][:n:n]
	}
	at, whole := r.runs(c.rx.Next(), m.run)
	if i == 1 {
		return ring[at : at+whole : at+whole]
	}
	n := m.run - whole
	return ring[:n:n]
}

// mark leaves in the blocks behind the first what their trailers would have been,
// so that the next lap finds a word of this one and not payload that may look
// like anything. The stores are before the credit that lets the peer write there
// again. Short path.
func (c *Channel) mark() {
	r := &c.rxRing
	pos := c.rx.Next()
	for i := 1; i < c.cur.k; i++ {
		p := pos + uint64(i)
		binary.LittleEndian.PutUint64(c.in[ringStart+r.offset(p)+r.room():], uint64(makeTrailer(0, 0, 0, r.Lap(p))))
	}
}

// consume gives the blocks of the current message free and returns credit if
// it is due. Short path.
func (c *Channel) consume() {
	c.stats.Received++
	c.stats.ReceivedBytes += uint64(c.cur.Len)
	if c.lapMode && c.cur.k > 1 {
		c.mark()
	}
	c.rx.Consume(c.cur.k)
	c.cur.k = 0
	if c.live && c.rx.Due(false) {
		_ = c.flush(false) // a failure stays in c.err, a full queue leaves it due
	}
}

// Progress posts what waits and returns credit that is due, or, with force,
// all that is owed. Call it when the link has made room and when idle. done is
// false if something is left for the next call. Short path.
func (c *Channel) Progress(force bool) (done bool, err error) {
	if c.err != nil {
		return false, c.err
	}
	if !c.live {
		return true, nil
	}
	if !force && !c.nudge && c.first == c.staged && !c.cursorOut && !c.rx.Due(false) && load64(c.in, creditCell) == c.word {
		return true, nil
	}
	err = c.flush(force)
	return c.first == c.staged && !c.nudge && !c.rx.Due(false) && (!force || c.rx.Owed() == 0), err
}

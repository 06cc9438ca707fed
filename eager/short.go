package eager

import "encoding/binary"

// Short looks for a message of this kind, with meta, in a single block, as SendShort writes
// them. msg lies in the ring, and is the peer's to change, until TakeShort. ok is false if
// the next message, if there is any, is another: Peek then describes it, or says what is
// wrong with it. It has no effect.
//
// Hot path.
func (rc *receiver) Short(kind uint8) (meta uint64, msg []byte, ok bool) {
	if rc.cur.k != 0 || !rc.lapMode || !rc.live || rc.lease&1 != 0 {
		return 0, nil, false
	}
	r := &rc.rxRing
	pos := rc.rx.Next()
	at := ringStart + r.offset(pos) + r.room()
	t := trailer(load64(rc.in, at))
	want := makeTrailer(0, kind, flagFirst|flagLast|flagMeta, r.Lap(pos))
	n := t.length()
	if t^want != trailer(n) || n > r.size-trailerSize-metaSize {
		return 0, nil, false
	}
	from := at - metaSize - int((n+7)&^7)
	b := rc.in[from:at:at]
	return binary.LittleEndian.Uint64(rc.in[at-metaSize:]), b[:n:n], true
}

// TakeShort receives the message of n bytes that Short has returned: it frees its block, and
// returns credit if it is due.
//
// Hot path.
func (c *Channel) TakeShort(n int) {
	c.rx.Consume(1)
	if c.rx.Due(false) {
		_ = c.flush(false) // c.err keeps a failure; with a full queue the credit remains due
	}
}

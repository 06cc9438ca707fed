package eager

import "encoding/binary"

// Short looks for a message of this kind, with meta, in a single block, as SendShort writes
// them. msg lies in the ring, and is the peer's to change, until TakeShort. ok is false if
// the next message, if there is any, is another: Peek then describes it, or says what is
// wrong with it. It has no effect, except that a block of several messages is freed when the peer
// has gone on to the next one.
//
// Hot path.
func (rc *receiver) Short(kind uint8) (meta uint64, msg []byte, ok bool) {
	if rc.cur.k != 0 || !rc.lapMode || !rc.live || rc.lease&1 != 0 {
		return 0, nil, false
	}
	r := &rc.rxRing
	pos := rc.rx.Next()
	t, at := rc.trailer(pos)
	n := t.length()
	need := (n+7)&^7 + metaSize + trailerSize
	rc.cur.more = false
	if other := t ^ makeTrailer(n, kind, flagFirst|flagLast|flagMeta, r.Lap(pos)); other != 0 {
		if t == 0 && rc.end != r.size && rc.leaveShared(pos) {
			return rc.Short(kind)
		}
		if other != flagMore<<40 || r.Every < 2 {
			return 0, nil, false
		}
		rc.cur.more = true
		need += trailerSize // of the next message
	}
	if n > r.size || need > rc.end {
		return 0, nil, false
	}
	b := rc.in[at-metaSize-int((n+7)&^7) : at : at]
	return binary.LittleEndian.Uint64(rc.in[at-metaSize:]), b[:n:n], true
}

// TakeShort receives the message of n bytes that Short has returned: it frees its block, and
// returns credit if it is due.
//
// Hot path.
func (c *Channel) TakeShort(n int) {
	c.took(1, (uint32(n)+7)&^7+metaSize+trailerSize)
	if c.rx.Due(false) {
		_ = c.flush(false) // c.err keeps a failure; with a full queue the credit remains due
	}
}

package eager

import (
	"encoding/binary"

	"github.com/seed33544411/rma/flowctl"
)

// SendShort is Send of a message of one block with meta, made where it is to lie: in the
// peer's ring, where the link maps that. There is no copy of it here, no request and no
// completion; the one cache line that an empty to medium message needs is written once.
// It reports false, and has done nothing, wherever Send would have to be asked: the
// ring is not mapped here or full, something waits to be posted, the message is
// longer than a block, the peer's mode is not ModeLap. Short path.
func (c *Channel) SendShort(kind uint8, meta uint64, b []byte) bool {
	r := &c.txRing
	if c.near == nil || !c.live || c.first != c.staged || len(b) > r.room()-metaSize || c.tx.PeerSleeps() {
		return false
	}
	if c.tx.Free(flowctl.Data) == 0 && (c.applyCredit() != nil || c.tx.Free(flowctl.Data) == 0) {
		return false // the error is kept
	}
	pos := c.tx.Head()
	body := (len(b) + 7) &^ 7
	n := body + metaSize + trailerSize
	mem := c.near.Reach(c.peer.Region.RKey, c.peer.Region.Addr+uint64(ringStart+r.offset(pos)+int(r.size)-n), n)
	if len(mem) != n {
		return false
	}
	switch len(b) {
	case 8:
		binary.LittleEndian.PutUint64(mem, binary.LittleEndian.Uint64(b))
	default:
		clear(mem[copy(mem, b):body])
	}
	binary.LittleEndian.PutUint64(mem[body:], meta)
	store64(mem, body+metaSize, uint64(makeTrailer(uint32(len(b)), kind, flagFirst|flagLast|flagMeta, r.Lap(pos))))
	c.near.Stored()
	c.tx.Reserve(1, flowctl.Data)
	// What is mapped was carried out when Reach allowed this; no completion is needed
	// to know that the mirror is free.
	_ = c.tx.Complete(pos + 1)
	c.signaled, c.quiet = pos+1, 0
	c.stats.Sent++
	c.stats.SentBytes += uint64(len(b))
	if c.rx.Due(true) {
		c.creditShort()
	}
	return true
}

// creditShort returns credit that is due, as flush does.
func (c *Channel) creditShort() {
	if c.creditOut {
		return // of two words the last must be the newer
	}
	mem := c.near.Reach(c.peer.Region.RKey, c.peer.Region.Addr+creditCell, 8)
	if len(mem) != 8 {
		return // it stays due
	}
	store64(mem, 0, c.rx.Word())
	c.near.Stored()
	c.stats.Credits++
}

// Waiting reports whether Peek has something to tell: a message, or an error. Where
// nothing is there it costs one load. Short path.
func (c *Channel) Waiting() bool {
	if c.cur.k != 0 || !c.lapMode || !c.live {
		return true
	}
	r := &c.rxRing
	pos := c.rx.Next()
	t := trailer(load64(c.in, ringStart+r.offset(pos)+r.room()))
	return t.lap() != r.Lap(pos)-1
}

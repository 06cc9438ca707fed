package eager

import (
	"encoding/binary"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/flowctl"
)

// Result says what became of a message handed over. Back-pressure is a value.
type Result uint8

// Results.
const (
	// Accepted: the message was copied; the caller's memory is free again. It
	// is on its way, or waits in the channel for room in the link's queue.
	Accepted Result = iota

	// NoCredit: the ring has no room. Poll, receive from this peer's channel,
	// and try again when credit or completions have come.
	NoCredit

	// QueueFull: the link's queue has no room, and the few messages that the
	// channel holds back are as many as it may. Poll and try again.
	QueueFull
)

// String returns the name of the result.
func (r Result) String() string {
	switch r {
	case Accepted:
		return "accepted"
	case NoCredit:
		return "no credit"
	case QueueFull:
		return "queue full"
	}
	return fmt.Sprintf("result(%d)", uint8(r))
}

// Envelope is what goes with a payload. Meta costs 8 bytes on the wire, only
// when HasMeta is set; Kind is free.
type Envelope struct {
	Meta    uint64
	Kind    uint8
	HasMeta bool
	Class   flowctl.Class // flowctl.Control finds room where data does not
}

// Send hands over the message made of pieces, in order, and posts it. It
// copies; it does not block or allocate. A non-nil error is the channel's end,
// or ErrTooLarge or ErrNotConnected, which concern this message only. Short path.
func (c *Channel) Send(e Envelope, pieces ...[]byte) (Result, error) {
	// What waits goes first; if it cannot, neither can this.
	if c.first != c.staged {
		if err := c.flush(false); err != nil {
			return NoCredit, err
		}
		if c.first != c.staged {
			c.stats.QueueFull++
			return QueueFull, nil
		}
	}
	res, err := c.stage(&e, pieces)
	if res != Accepted || err != nil {
		return res, err
	}
	return Accepted, c.flush(false)
}

// Stage is Send without posting: the message goes out with the next Flush, in
// one Post with the others. It flushes by itself when there is no room. Short
// path.
func (c *Channel) Stage(e Envelope, pieces ...[]byte) (Result, error) {
	res, err := c.stage(&e, pieces)
	if res == Accepted || err != nil || c.first == c.staged {
		return res, err
	}
	if err := c.flush(false); err != nil {
		return res, err
	}
	return c.stage(&e, pieces)
}

// Flush posts what was staged and returns credit that is due. done is false if
// the link's queue took less than all: flush again after polling. Short path.
func (c *Channel) Flush() (done bool, err error) {
	if c.err != nil {
		return false, c.err
	}
	if !c.live {
		return false, ErrNotConnected
	}
	err = c.flush(false)
	return c.first == c.staged && !c.rx.Due(false), err
}

// messageWRs is how many requests a message takes at most: blocks behind the
// first in two pieces, and the first. flushWRs is what a flush may add: write
// cursor and credit.
const (
	messageWRs = 3
	flushWRs   = 2
)

// stage copies a message to the mirror and appends its requests. Short path.
func (c *Channel) stage(e *Envelope, pieces [][]byte) (Result, error) {
	if !c.live {
		if c.err != nil {
			return NoCredit, c.err
		}
		return NoCredit, ErrNotConnected
	}
	n := 0
	for _, p := range pieces {
		n += len(p)
	}
	if n > c.txRing.limit(e.Class, e.HasMeta) {
		return NoCredit, fmt.Errorf("send of %d bytes, limit %d: %w", n, c.txRing.limit(e.Class, e.HasMeta), ErrTooLarge)
	}
	if !c.makeRoom(messageWRs + flushWRs) {
		c.stats.QueueFull++
		return QueueFull, nil
	}
	k, fill := c.txRing.split(uint64(n), e.HasMeta)
	pos, ok := c.tx.Reserve(k, e.Class)
	if !ok {
		// Credit is looked at when needed, and in every flush.
		if err := c.applyCredit(); err != nil {
			return NoCredit, err
		}
		if pos, ok = c.tx.Reserve(k, e.Class); !ok {
			c.stats.NoCredit++
			return NoCredit, nil
		}
	}
	c.fill(e, pos, k, fill, n, pieces)
	c.request(pos, k, fill)
	c.stats.Sent++
	c.stats.SentBytes += uint64(n)
	return Accepted, nil
}

// makeRoom makes sure that n more requests can be staged.
func (c *Channel) makeRoom(n int) bool {
	if c.staged+n <= len(c.wrs) {
		return true
	}
	if c.staged-c.first+n > len(c.wrs) {
		return false
	}
	for i := range c.staged - c.first {
		c.sges[i] = c.sges[c.first+i]
		c.wrs[i] = c.wrs[c.first+i]
		c.wrs[i].Local = c.sges[i : i+1]
	}
	c.staged -= c.first
	c.first = 0
	return true
}

// fill writes the message to the mirror: fill bytes against the trailer of the
// first block, the other blocks full, zeros to a multiple of 8, trailers.
func (c *Channel) fill(e *Envelope, pos uint64, k, fill, n int, pieces [][]byte) {
	r := &c.txRing
	size, room := int(r.size), r.room()
	block := c.out[r.offset(pos):][:size]
	head := room
	var flags uint8 = flagFirst
	if e.HasMeta {
		head -= metaSize
		flags |= flagMeta
		binary.LittleEndian.PutUint64(block[head:], e.Meta)
	}
	if k == 1 {
		flags |= flagLast
	}
	binary.LittleEndian.PutUint64(block[room:], uint64(makeTrailer(uint32(n), e.Kind, flags, r.Lap(pos))))
	dst := block[room-fill : head]
	left := n - len(dst) // behind the first block; below 1 if there is only one
	for _, p := range pieces {
		for len(p) > 0 {
			if len(dst) == 0 {
				pos++
				block = c.out[r.offset(pos):][:size]
				dst = block[:room]
				flags = 0
				if left <= room {
					flags = flagLast
				}
				binary.LittleEndian.PutUint64(block[room:], uint64(makeTrailer(uint32(left), e.Kind, flags, r.Lap(pos))))
				left -= room
			}
			m := copy(dst, p)
			dst, p = dst[m:], p[m:]
		}
	}
	if len(dst) > 0 {
		// Padding of up to 7 bytes, and in the last block of several what its
		// full write covers.
		clear(dst)
	}
}

// request appends the requests that write the message.
func (c *Channel) request(pos uint64, k, fill int) {
	r := &c.txRing
	size := int(r.size)
	start := r.offset(pos) + r.room() - fill
	head := c.tx.Head()
	if c.cursorOut {
		// The write cursor follows; these are done only as far as pos, because
		// the word of the cursor of this message is still to come.
		whole := min(k, int(r.Blocks-r.Slot(pos)))
		c.write(start, r.offset(pos)+whole*size-start, pos)
		if whole < k {
			c.write(0, (k-whole)*size, pos)
		}
		c.sign(c.staged-1, pos)
		return
	}
	if k > 1 {
		// Blocks behind the first go first, see the package comment.
		next := r.Slot(pos + 1)
		whole := min(k-1, int(r.Blocks-next))
		c.write(int(next)*size, whole*size, pos)
		if whole < k-1 {
			c.write(0, (k-1-whole)*size, pos)
		}
	}
	c.write(start, fill+trailerSize, head)
	c.sign(c.staged-1, head)
}

// write appends the write of n bytes at off of the mirror to the same place of
// the ring. pos is the position that its completion stands for.
func (c *Channel) write(off, n int, pos uint64) {
	c.append(fabric.NewSGE(c.out[off:off+n], c.outKey), ringStart+off, c.id(pos))
}

func (c *Channel) append(s fabric.SGE, remote int, id uint64) {
	i := c.staged
	c.sges[i] = s
	w := &c.wrs[i]
	*w = fabric.WR{
		ID: id, Local: c.sges[i : i+1], RemoteAddr: c.peer.Region.Addr + uint64(remote),
		RKey: c.peer.Region.RKey, Imm: c.peer.Imm, Op: fabric.OpWrite,
	}
	if int(s.Len) <= c.inline {
		w.Flags = fabric.FlagInline
	}
	c.staged++
	c.quiet++
}

// sign makes the staged request i, whose completion stands for pos, signalled
// if it is time: a quarter queue of requests, or Geometry.SignalEvery blocks.
func (c *Channel) sign(i int, pos uint64) {
	if c.quiet >= c.signalWRs || c.tx.Head()-c.signaled >= uint64(c.txRing.SignalEvery()) && pos != c.signaled {
		c.wrs[i].Flags |= fabric.FlagSignaled
		c.quiet, c.signaled = 0, pos
	}
}

// applyCredit takes the credit word if it has changed. Short path.
func (c *Channel) applyCredit() error {
	w := load64(c.in, creditCell)
	if w == c.word {
		return nil
	}
	if err := c.tx.Apply(w); err != nil {
		return c.fail(err)
	}
	c.word = w
	return nil
}

// flush completes what was staged with write cursor and credit, and posts it.
// Credit goes out when it is due, with force when any is owed. Short path.
func (c *Channel) flush(force bool) error {
	if !c.live {
		return c.err
	}
	if err := c.applyCredit(); err != nil {
		return err
	}
	if head := c.tx.Head(); c.cursorOut && c.told != head && c.makeRoom(1) {
		// The word lives with the last block it announces: it is free again
		// when that block is.
		off := c.txRing.bytes() + 8*int(c.txRing.Slot(head-1))
		binary.LittleEndian.PutUint64(c.out[off:], head)
		c.append(fabric.NewSGE(c.out[off:off+8], c.outKey), cursorCell, c.id(head))
		c.told = head
		c.sign(c.staged-1, head)
	}
	// A credit's completion stands for the head, so its cursor must be out.
	if c.rx.Due(c.first != c.staged) || force && c.rx.Owed() > 0 {
		if !c.creditOut && (!c.cursorOut || c.told == c.tx.Head()) && c.makeRoom(1) {
			c.stageCredit()
		}
	}
	if c.first == c.staged {
		c.first, c.staged = 0, 0
		return nil
	}
	if c.tx.PeerSleeps() {
		if w := &c.wrs[c.staged-1]; w.Flags&fabric.FlagNotify == 0 {
			w.Flags |= fabric.FlagNotify
			c.stats.Notifies++
		}
	}
	n, err := c.ep.Post(c.wrs[c.first:c.staged])
	c.stats.Posts++
	c.stats.Writes += uint64(n)
	c.first += n
	if err != nil {
		return c.fail(err)
	}
	if c.first == c.staged {
		c.first, c.staged = 0, 0
	}
	return nil
}

// stageCredit appends the write of the consumption cursor to the peer's cell.
func (c *Channel) stageCredit() {
	off := len(c.out) - 8
	binary.LittleEndian.PutUint64(c.out[off:], c.rx.Word())
	head := c.tx.Head()
	c.append(fabric.NewSGE(c.out[off:off+8], c.outKey), creditCell, c.id(head))
	w := &c.wrs[c.staged-1]
	if w.Flags&fabric.FlagInline == 0 {
		// The link reads the word later: it must stay until then.
		w.ID |= idCredit
		w.Flags |= fabric.FlagSignaled
		c.quiet, c.signaled, c.creditOut = 0, head, true
	} else {
		c.sign(c.staged-1, head)
	}
	c.stats.Credits++
}

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
	return c.first == c.staged && !c.nudge && !c.rx.Due(false), err
}

// messageWRs is how many requests a copied message takes at most: the run in two
// pieces, and the first block. flushWRs is what a flush may add: write
// cursor and credit.
const (
	messageWRs = 3
	flushWRs   = 2
)

// stage copies a message to the mirror and appends its requests. Short path.
func (c *Channel) stage(e *Envelope, pieces [][]byte) (Result, error) {
	n := 0
	for _, p := range pieces {
		n += len(p)
	}
	p, res, err := c.claim(e, n)
	if res != Accepted || err != nil {
		return res, err
	}
	c.fill(e, &p, n, pieces)
	c.request(&p)
	return Accepted, nil
}

// claim takes the blocks for a message of n bytes that is to be copied, once it is
// certain that its requests can be staged. Short path.
func (c *Channel) claim(e *Envelope, n int) (place, Result, error) {
	if !c.live {
		if c.err != nil {
			return place{}, NoCredit, c.err
		}
		return place{}, NoCredit, ErrNotConnected
	}
	if n > c.txRing.limit(e.Class, e.HasMeta) {
		return place{}, NoCredit, fmt.Errorf("send of %d bytes, limit %d: %w", n, c.txRing.limit(e.Class, e.HasMeta), ErrTooLarge)
	}
	if !c.makeRoom(messageWRs+flushWRs, messageWRs+flushWRs) {
		c.stats.QueueFull++
		return place{}, QueueFull, nil
	}
	k, fill := c.txRing.split(uint64(n), e.HasMeta)
	pos, ok, err := c.reserve(k, e.Class)
	if !ok {
		return place{}, NoCredit, err
	}
	c.stats.Sent++
	c.stats.SentBytes += uint64(n)
	return c.place(pos, k, fill, n, e.HasMeta), Accepted, nil
}

// makeRoom makes sure that n more requests with pieces SGEs between them can be
// staged.
func (c *Channel) makeRoom(n, pieces int) bool {
	if c.staged+n <= len(c.wrs) && c.pieces+pieces <= len(c.sges) {
		return true
	}
	used := 0 // by requests that wait
	for i := c.first; i < c.staged; i++ {
		used += len(c.wrs[i].Local)
	}
	if c.staged-c.first+n > len(c.wrs) || used+pieces > len(c.sges) {
		return false
	}
	copy(c.sges, c.sges[c.pieces-used:c.pieces])
	copy(c.wrs, c.wrs[c.first:c.staged])
	c.staged, c.first, c.pieces = c.staged-c.first, 0, 0
	for i := range c.staged {
		w := &c.wrs[i]
		w.Local = c.sges[c.pieces : c.pieces+len(w.Local)]
		c.pieces += len(w.Local)
	}
	return true
}

// reserve takes k blocks of the ring. Short path.
func (c *Channel) reserve(k int, class flowctl.Class) (pos uint64, ok bool, err error) {
	if pos, ok = c.tx.Reserve(k, class); ok {
		return pos, true, nil
	}
	// Credit is looked at when needed, and in every flush.
	if err := c.applyCredit(); err != nil {
		return 0, false, err
	}
	if pos, ok = c.tx.Reserve(k, class); !ok {
		c.stats.NoCredit++
	}
	return pos, ok, nil
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
	if head := c.tx.Head(); c.cursorOut && c.told != head && c.makeRoom(1, 1) {
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
		if !c.creditOut && (!c.cursorOut || c.told == c.tx.Head()) && c.makeRoom(1, 1) {
			c.stageCredit()
		}
	}
	if c.nudge {
		c.stageNudge()
	}
	if c.first == c.staged {
		c.first, c.staged, c.pieces = 0, 0, 0
		return nil
	}
	if c.borrowed {
		c.signBorrowed()
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
		c.first, c.staged, c.pieces = 0, 0, 0
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

// Free is how many blocks a message of class cl may take, as far as this side
// knows: credit is looked at by Flush and Progress. Short path.
func (c *Channel) Free(cl flowctl.Class) int { return c.tx.Free(cl) }

// Window is the ring of the peer, in bytes: how much of it data may fill, after how
// much of it credit comes back, and a block. All 0 before Connect.
func (c *Channel) Window() (data, credit, block int) {
	r := &c.txRing
	return int(r.Blocks-r.Control) * int(r.size), int(r.Every) * int(r.size), int(r.size)
}

package eager

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/flowctl"
)

// sender is the outgoing direction of a channel: the mirror of the peer's ring, and the
// requests that write it there. Credit for the incoming direction is posted with them.
type sender struct {
	*core
	back *receiver // its credit is sent with requests, and its memory holds the peer's credit word
	ep   fabric.Endpoint
	link fabric.Link

	cursorOut  bool // the peer's mode requires a write cursor
	creditOut  bool // a credit write is in flight whose source word must not change
	lax        bool // completions of blocks that are done already may arrive
	borrowed   bool // memory sent in place since the last signalled request
	nudge      bool // a notification is due
	out        []byte
	tx         flowctl.Sender
	txRing     ring
	word       uint64 // the last credit word applied
	cursorSent uint64 // the last write cursor sent to the peer
	signaled   uint64 // position that the last signalled request covers
	quiet      int    // requests staged since then
	wrs        []fabric.WR
	sges       []fabric.SGE
	batch      uint32 // entries of wrs and sges, which prepare creates
	listed     uint32
	first      int // wrs[first:staged] wait for Post
	staged     int
	low        int           // bytes before the messages of the block that SendShort appends to; 0: there is none
	answered   uint64        // back.reached at the last SendShort
	pieces     int           // sges[:pieces] are used by wrs[:staged]
	inPlace    int           // bound of the pieces in place of one message
	near       fabric.Direct // ep, if the link may map the peer's ring
	peer       Setup
	outKey     uint32
	inline     int // bytes that may be sent inline
	signalWRs  int
	maxSGE     int // of the link
	outReg     fabric.Region
	stats      Stats
	tag        uint16 // of WR IDs
}

// Send copies the message, which consists of the pieces in order, and posts it. It does not
// block or allocate. ErrTooLarge and ErrNotConnected concern this message only; any other
// error ends the channel.
//
// Hot path.
func (s *sender) Send(e Envelope, pieces ...[]byte) (Result, error) {
	// Waiting requests are posted first. If they cannot be, this one cannot either.
	if s.first != s.staged {
		if err := s.flush(false); err != nil {
			return NoCredit, err
		}
		if s.first != s.staged {
			s.stats.QueueFull++
			return QueueFull, nil
		}
	}
	res, err := s.stage(&e, pieces)
	if res != Accepted || err != nil {
		return res, err
	}
	return Accepted, s.flush(false)
}

// Stage is Send without posting: the next Flush posts the message, in one Post with the
// others. Stage flushes if there is no room.
//
// Hot path.
func (s *sender) Stage(e Envelope, pieces ...[]byte) (Result, error) {
	res, err := s.stage(&e, pieces)
	if res == Accepted || err != nil || s.first == s.staged {
		return res, err
	}
	if err := s.flush(false); err != nil {
		return res, err
	}
	return s.stage(&e, pieces)
}

// Compose stages a message of n bytes without its payload, and returns the room that the
// caller must fill completely before it calls another method of the channel. Otherwise it
// works as Stage.
//
// Hot path.
func (s *sender) Compose(e Envelope, n int) (Room, Result, error) {
	p, res, err := s.claim(&e, n)
	if res != Accepted && err == nil && s.first != s.staged {
		if err = s.flush(false); err == nil {
			p, res, err = s.claim(&e, n)
		}
	}
	if res != Accepted || err != nil {
		return Room{}, res, err
	}
	block, head := s.seal(&e, &p, n)
	r := Room{parts: [3][]byte{block[s.txRing.room()-p.fill : head]}}
	last := &r.parts[0]
	if p.run > 0 {
		if r.parts[1], last = s.out[p.at:p.at+p.whole], &r.parts[1]; p.whole < p.run {
			r.parts[2], last = s.out[:p.run-p.whole], &r.parts[2]
		}
	}
	end := len(*last) - p.pad
	clear((*last)[end:])
	*last = (*last)[:end]
	s.request(&p)
	return r, Accepted, nil
}

// messageWRs is the largest number of requests of a copied message: the run in two pieces,
// and the first block. flushWRs is the number that a flush may add: write cursor and
// credit.
const (
	messageWRs = 3
	flushWRs   = 2
)

// stage copies a message to the mirror and appends its requests.
//
// Hot path.
func (s *sender) stage(e *Envelope, pieces [][]byte) (Result, error) {
	n := 0
	for _, p := range pieces {
		n += len(p)
	}
	p, res, err := s.claim(e, n)
	if res != Accepted || err != nil {
		return res, err
	}
	s.fill(e, &p, n, pieces)
	s.request(&p)
	return Accepted, nil
}

// claim reserves the blocks for a message of n bytes that will be copied, after making sure
// that its requests can be staged.
//
// Hot path.
func (s *sender) claim(e *Envelope, n int) (place, Result, error) {
	if !s.open {
		return place{}, NoCredit, s.ready()
	}
	if n > s.txRing.limit(e.Class, e.HasMeta) {
		return place{}, NoCredit, fmt.Errorf("send of %d bytes, limit %d: %w", n, s.txRing.limit(e.Class, e.HasMeta), ErrTooLarge)
	}
	if !s.makeRoom(messageWRs+flushWRs, messageWRs+flushWRs) {
		s.stats.QueueFull++
		return place{}, QueueFull, s.err
	}
	k, fill := s.txRing.split(uint64(n), e.HasMeta)
	pos, ok, err := s.reserve(k, e.Class)
	if !ok {
		return place{}, NoCredit, err
	}
	s.stats.Sent++
	return s.place(pos, k, fill, n, e.HasMeta), Accepted, nil
}

// reserve reserves k blocks of the ring. SendShort appends nothing more to the block before.
//
// Hot path.
func (s *sender) reserve(k int, class flowctl.Class) (pos uint64, ok bool, err error) {
	s.low = 0
	if pos, ok = s.tx.Reserve(k, class); ok {
		return pos, true, nil
	}
	// The credit word is read when credit is needed, and in every flush.
	if err := s.applyCredit(); err != nil {
		return 0, false, err
	}
	if pos, ok = s.tx.Reserve(k, class); !ok {
		s.stats.NoCredit++
	}
	return pos, ok, nil
}

// Free returns the number of blocks that a message of class cl may use, as far as this side
// knows: Flush and Progress read the credit word.
//
// Hot path.
func (s *sender) Free(cl flowctl.Class) int { return s.tx.Free(cl) }

// Head returns the number of blocks, of this ring of the peer and of those before, that messages
// have taken, and those that were left out.
func (s *sender) Head() uint64 { return s.tx.Head() }

// Window describes the ring of the peer, in bytes: the part that data may use, the amount
// after which credit is returned, and a block. All are 0 before Connect.
func (s *sender) Window() (data, credit, block int) {
	r := &s.txRing
	return int(r.Blocks-r.Control) * int(r.size), int(r.Every) * int(r.size), int(r.size)
}

// MaxPayload returns the size of the longest message of class cl, in bytes, 0 before
// Connect.
func (s *sender) MaxPayload(cl flowctl.Class, meta bool) int {
	if s.txRing.Blocks == 0 {
		return 0
	}
	return s.txRing.limit(cl, meta)
}

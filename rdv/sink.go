package rdv

import (
	"errors"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/scatter"
)

// sink is the receiving side of a channel: it fetches messages that the peer has announced,
// and advertises destinations for the peer to write.
type sink struct {
	*core
	in        []incoming // the peer's transfers, created when needed
	fetching  int        // transfers in use
	announced int        // messages of these
	hold      bool       // Accept and Refuse collect their changes
	changed   []uint16   // slots that they have changed

	mine     []myAdvert // destinations advertised by this side
	mineFree []uint16
}

// States of an incoming transfer.
const (
	inFree   uint8 = iota
	inActive       // messages wait, are fetched, and end one by one
	inEnding       // all messages ended: FIN waits for room in the ring
)

// States of a message of an incoming transfer.
const (
	msgWaiting uint8 = iota // for a destination
	msgMatched              // waits for its turn
	msgRunning              // part of the current run
	msgEnded
)

// incoming is a transfer that the peer announced. Its messages are fetched in runs: a run
// is a sequence of neighbours that have destinations, read as one stream. One run of a
// transfer is in progress at a time.
type incoming struct {
	d    scatter.Descriptor
	msgs []message
	dest []fabric.SGE // pieces of matched messages, in the order of matching
	plan scatter.Plan

	run, runEnd int    // messages [run, runEnd) are in progress; run advances as they end
	upto        int    // messages before this one are covered by requests
	planned     uint64 // stream position up to which requests were built

	inflight int // requests staged or posted
	left     int // messages not ended
	id       ID
	tag      uint32
	rails    RailKeys // of the only region; Has is 0 if there are none
	status   uint32   // of the FIN
	gen      uint16
	state    uint8

	// Offers: chunks announced, passed to the plan, fetched; bytes announced.
	announced, fed, fetched uint32
	bytes                   uint64

	matching bool // inside onRTS: runs start when it ends
	queued   bool // in core.turns
	changed  bool // in sink.changed
	chunked  bool // an offer: d.Regions are its chunks, in a ring
	acking   bool // an acknowledgement is queued
	waited   bool // a destination was set later than the announcement
}

type message struct {
	end    uint64 // position in the stream after the message
	dst, n uint32 // pieces in dest
	state  uint8
	unread bool // refused: the FIN reports it
}

// connect allocates state for the bounds that both sides have agreed on.
func (s *sink) connect(adverts int) {
	s.mine, s.mineFree = make([]myAdvert, adverts), freeList(adverts)
}

// idle reports that nothing of this side is outstanding.
func (s *sink) idle() bool { return len(s.mineFree) == len(s.mine) && s.fetching == 0 }

// start returns the position of message i in the stream.
func (t *incoming) start(i int) uint64 {
	if i == 0 {
		return 0
	}
	return t.msgs[i-1].end
}

func (t *incoming) describe(i int) Incoming {
	m := &t.d.Messages[i]
	return Incoming{Pos: m.Pos, Size: m.Size, Tag: t.tag, Handle: makeHandle(t.id, i)}
}

// claim reserves the slot that the peer has chosen for a new transfer.
func (s *sink) claim(k Kind, id ID) (*incoming, error) {
	if id.slot() >= s.opt.Transfers {
		return nil, &ProtocolError{k, id, ErrTooMany, uint64(id.slot()), uint64(s.opt.Transfers)}
	}
	for len(s.in) <= id.slot() {
		s.in = append(s.in, incoming{})
	}
	t := &s.in[id.slot()]
	if t.state != inFree || id.gen() != t.gen+1 {
		return nil, &ProtocolError{k, id, ErrIDReused, uint64(id.gen()), uint64(t.gen + 1)}
	}
	return t, nil
}

// begin makes t an active transfer of the messages in t.d.
func (s *sink) begin(t *incoming, k Kind, id ID, tag uint32) error {
	if n, most := s.announced+len(t.d.Messages), mostMessages(s.opt.Transfers, s.opt.Messages); n > most {
		return &ProtocolError{k, id, ErrTooMany, uint64(n), uint64(most)}
	}
	s.fetching++
	s.announced += len(t.d.Messages)
	t.id, t.gen, t.tag, t.rails = id, id.gen(), tag, RailKeys{}
	t.state, t.status, t.waited = inActive, statusOK, false
	t.run, t.runEnd, t.upto, t.planned = 0, 0, 0, 0
	t.chunked, t.acking = false, false
	t.announced, t.fed, t.fetched, t.bytes = 0, 0, 0, 0
	t.dest, t.msgs = t.dest[:0], t.msgs[:0]
	t.left = len(t.d.Messages)
	var end uint64
	for i := range t.d.Messages {
		end += uint64(t.d.Messages[i].Size)
		t.msgs = append(t.msgs, message{end: end})
	}
	return nil
}

// active returns the active transfer with that id, nil if there is none.
func (s *sink) active(id ID) *incoming {
	if id.slot() >= len(s.in) {
		return nil
	}
	if t := &s.in[id.slot()]; t.state == inActive && t.gen == id.gen() {
		return t
	}
	return nil
}

// findMessage returns the message with that handle and its transfer, or nil if it has
// ended.
func (s *sink) findMessage(h Handle) (*incoming, int) {
	t, i := s.active(h.id()), h.index()
	if t == nil || i >= len(t.msgs) {
		return nil, 0
	}
	return t, i
}

// endMessage ends message i and calls the handler, unless the handler has refused it.
func (s *sink) endMessage(t *incoming, i int, err error) {
	m := &t.msgs[i]
	if m.state == msgEnded {
		return
	}
	m.state = msgEnded
	t.left--
	if err == nil {
		s.stats.Messages++
	} else {
		t.status, m.unread = statusRefused, true
	}
	if !errors.Is(err, ErrRefused) {
		s.h.Received(t.describe(i), err)
	}
}

func (s *sink) free(t *incoming) {
	if t.state != inFree {
		s.fetching--
		s.announced -= len(t.d.Messages)
	}
	t.state, t.queued = inFree, false
}

// sendAnswer sends an answer of this side. It returns false if the ring has no room.
//
// Hot path.
func (s *sink) sendAnswer(x answer) bool {
	if x.kind == KindRevoke {
		if !s.send(x.kind, x.id, x.arg, nil) {
			return false
		}
		s.Nudge()
		return true
	}
	if x.kind == KindFilled {
		return s.send(x.kind, x.id, x.arg, nil)
	}
	t := &s.in[x.id.slot()]
	payload := s.note[:0] // not s.payload, which the caller may have filled
	switch {
	case x.kind == KindAck: // only the latest count matters
		x.arg = t.fetched
	case x.kind == KindFIN && x.arg == statusRefused:
		payload = t.appendRefused(payload)
	}
	if !s.send(x.kind, x.id, x.arg, payload) {
		return false
	}
	switch x.kind {
	case KindAck:
		t.acking = false
	case KindFIN:
		s.free(t)
	}
	return true
}

// appendRefused appends a bit for each message of t, set if it was refused. checkRefused
// checks it.
func (t *incoming) appendRefused(b []byte) []byte {
	for i := range t.msgs {
		if i%8 == 0 {
			b = append(b, 0)
		}
		if t.msgs[i].unread {
			b[len(b)-1] |= 1 << (i % 8)
		}
	}
	return b
}

// offer offers the transfer t, whose only message has its destination, to its sender: both ends
// then copy slices of it, this one from its next round on. An end that waits begins at once, one
// that computes does not.
func (s *sink) offer(t *incoming) bool {
	n := t.d.Messages[0].Size
	if s.claims.direct == nil || len(t.msgs) != 1 || t.msgs[0].n != 1 || len(t.d.Regions) != 1 || n < s.claims.least {
		return false
	}
	k, ok := s.claims.by.Destination(makeHandle(t.id, 0))
	if !ok || s.answers.Len() > 0 {
		return false
	}
	word, ok := s.claims.take(claimName(t.id, false))
	if !ok {
		return false
	}
	sh := s.shares.take(shareIncoming, t.id.slot(), t.id, n)
	s.payload = appendCTS(s.payload[:0], k, s.claims.ref(word))
	if sh == nil || !s.send(KindCTS, t.id, 0, s.payload) {
		s.shares.give(sh)
		s.claims.drop(word)
		return false
	}
	r := &t.d.Regions[0]
	sh.number, sh.local, sh.far = word, t.dest[t.msgs[0].dst], fabric.RemoteKey{Addr: r.Addr, RKey: r.RKey}
	return true
}

// sweepIncoming ends, after a failure, the transfers with nothing in flight.
func (s *sink) sweepIncoming() {
	for i := range s.in {
		t := &s.in[i]
		if t.state == inFree || t.inflight > 0 {
			continue
		}
		sh := s.shares.of(shareIncoming, i)
		if !s.claims.leave(sh, s.severed) {
			continue // this side or the peer may be writing
		}
		s.shares.give(sh)
		t.matching = true // prevents runs from starting
		for k := range t.msgs {
			s.endMessage(t, k, s.err)
		}
		t.matching = false
		s.free(t)
	}
}

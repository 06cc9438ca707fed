package rdv

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/fifo"
	"github.com/seed33544411/rma/scatter"
)

// source is the sending side of a channel: it announces messages for the peer to fetch, and
// writes into destinations that the peer has advertised.
type source struct {
	*core
	announcements
	out     []outgoing // created when needed
	outFree []uint16
	waited  bool // from the last FIN
	adverts uint16
	refused []byte // from the current FIN

	pipes   []pipe            // of transfers in out that are sent in chunks; created when needed
	streams fifo.Ring[uint16] // pipes with chunks to send
	stage   staging

	theirs   []theirAdvert // destinations of the peer, at most adverts; created when needed
	words    []claimRef    // of theirs, by slot; nil until one has a word
	jobs     []writeJob    // writes into those; created when needed
	jobsFree []uint16
}

// Means is how the data of a transfer becomes accessible to the peer.
type Means uint8

// Means of SendUnregistered.
const (
	byReference Means = iota // registered by the caller: Send

	// Copy copies chunks into staging memory.
	Copy

	// Register registers the chunks in place: there is no copy, but each chunk takes a
	// system call on devices. The memory must be off the Go heap or pinned until
	// Handler.Sent.
	Register
)

// pipe is the chunked part of an outgoing transfer.
type pipe struct {
	src     []byte
	off     int // bytes of src announced
	grow    growth
	by      Means
	chunks  []chunk // ring of chunks announced and not acknowledged
	sent    uint32  // chunks announced
	acked   uint32
	pending chunk // prepared, waits for room in the ring; len 0: none
	ready   bool  // the receiver has a destination
	queued  bool  // in streams
}

// chunk is a prepared part of a message.
type chunk struct {
	reg  fabric.Region // if registered
	addr uint64
	len  uint32
	key  uint32
	span int // if copied: position of the span
}

// outgoing is a transfer with sources of this side. The peer may read them until its FIN,
// or until the endpoint is down.
type outgoing struct {
	token uint64
	gen   uint16
	n     uint16 // messages
	by    Means
	busy  bool // announced; the FIN ends it

	offered bool // a CTS has come
}

// States of an advert of the peer.
const (
	theirsFree     uint8 = iota
	theirsOpen           // Write or Decline is due
	theirsWriting        // writes are being posted
	theirsAnswered       // the answer waits for room in the ring
)

type theirAdvert struct {
	want  Want // as advertised; once written, the content of the answer
	key   fabric.RemoteKey
	gen   uint16
	state uint8
	late  bool // a revocation may still arrive for the generation
}

func (a *theirAdvert) describe(id ID) Advert {
	return Advert{Want: a.want, Len: uint32(a.key.Len), ID: id}
}

// writeJob writes into an advert. It outlives the advert: the peer may see the data, and
// reuse the slot, before the completion is polled here.
type writeJob struct {
	plan     scatter.Plan
	src      []fabric.SGE
	region   [1]scatter.Region
	token    uint64
	advert   ID
	bytes    uint32
	inflight int
	busy     bool
}

// connect allocates state for the bounds that both sides have agreed on.
func (s *source) connect(transfers, adverts int) {
	s.announcements = newAnnouncements(s.opt.Window, transfers, min(int(s.peer.Messages), s.opt.Messages))
	s.streams = fifo.NewRing[uint16](transfers)
	s.adverts = uint16(adverts)
}

// idle reports that nothing of this side is outstanding.
func (s *source) idle() bool { return s.transfers == 0 && len(s.jobsFree) == len(s.jobs) }

// nextOutgoing returns the slot of the next transfer, if one is free and nothing older
// waits for the ring.
func (s *source) nextOutgoing() (slot int, ok bool) {
	if s.answers.Len() > 0 || s.Full() {
		s.stats.Busy++
		return 0, false
	}
	if len(s.outFree) == 0 {
		s.outFree = append(s.outFree, uint16(len(s.out)))
		s.out = append(s.out, outgoing{})
	}
	return int(s.outFree[len(s.outFree)-1]), true
}

// announce sends the first control message of a transfer of n messages in that slot, with
// core.payload as its payload.
func (s *source) announce(k Kind, slot int, tag uint32, token uint64, by Means, n int) (ID, bool) {
	o := &s.out[slot]
	id := makeID(slot, o.gen+1)
	if !s.send(k, id, tag, s.payload) {
		s.stats.Busy++
		return 0, false
	}
	s.outFree = s.outFree[:len(s.outFree)-1]
	s.begin(n)
	*o = outgoing{token: token, gen: id.gen(), n: uint16(n), by: by, busy: true}
	return id, true
}

// findOutgoing returns the transfer with that id, or nil if it has ended.
func (s *source) findOutgoing(id ID) *outgoing {
	if id.slot() >= len(s.out) {
		return nil
	}
	if o := &s.out[id.slot()]; o.busy && o.gen == id.gen() {
		return o
	}
	return nil
}

// findPipe returns the transfer in chunks with that id, or nil if there is none.
func (s *source) findPipe(id ID) *pipe {
	o := s.findOutgoing(id)
	if o == nil || o.by == byReference {
		return nil
	}
	return &s.pipes[id.slot()]
}

package eager

import (
	"errors"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/flowctl"
	"github.com/seed33544411/rma/internal/offheap"
)

// Kinds of the messages by which two sides replace a ring: see the package comment.
const (
	kindAsk     = 1 // 8 bytes: the writer wants a ring of so many bytes, or, if 0, the first one
	kindOffer   = 2 // a Setup: a ring that the reader has
	kindRefuse  = 3 // an ask is answered without an offer
	kindMove    = 4 // the last message in this ring: the next one is in the ring offered
	kindDecline = 5 // the offered ring is not used
)

// Messages that are to be sent, and what is to be done, in core.due.
const (
	dueAsk = 1 << iota
	dueAnswer
	dueOffer
	dueRefuse
	dueTake
	dueMove
	dueDecline
	dueClose
)

// resizing is the state of the replacement of the rings of a channel.
type resizing struct {
	budget *Budget          // nil: no bound
	theirs fabric.RemoteKey // the first region of the peer, which has its cells
	steps  []ring           // by rising size
	batch  int              // Options.Batch
	pieces int              // Options.Pieces

	// As the writer. One ask is outstanding at a time.
	wanted uint64 // bytes of the last ask
	asked  bool   // it is not answered
	lapses uint8  // asks refused in sequence
	late   bool   // Options.Late
	skip   uint32 // calls of Want to be ignored
	offer  Setup  // of the peer
	later  Setup  // the next offer, while moving to the ring of this one
	mirror mirror // of that ring
	before flowctl.Sender
	moves  uint32

	// As the reader. One offer is outstanding at a time.
	demand uint64  // bytes that the peer wants
	next   *inRing // offered
	home   inRing  // the first ring
	now    inRing  // the present one
	spurns uint8   // offers declined in sequence
	deaf   uint32  // asks to be refused
	dying  []inRing
	moved  uint32
	asides int // messages of the channel itself in sequence
}

// inRing is a ring that the peer may write.
type inRing struct {
	ring
	reg fabric.Region
	mem []byte
}

// mirror is the copy of a ring of the peer.
type mirror struct {
	mem []byte
	reg fabric.Region
}

// openMirror allocates the mirror of a ring: its blocks are followed by one word per block for
// write cursors and one for credit. sparse is that of Options.
func openMirror(link fabric.Link, r *ring, sparse bool) (m mirror, err error) {
	size := mirrorSize(r)
	if m.mem, err = offheap.Alloc(size, offheap.Staging); err != nil {
		return m, err
	}
	if !sparse {
		offheap.Populate(m.mem)
	}
	if m.reg, err = link.Register(m.mem, 0); err != nil {
		return mirror{}, errors.Join(err, offheap.Free(m.mem, offheap.Staging))
	}
	return m, nil
}

func mirrorSize(r *ring) int { return r.bytes() + 8*int(r.Blocks) + 8 }

// mirrorMemory returns the bytes that the mirror of a ring takes of a Budget.
func mirrorMemory(r *ring) int { return offheap.RoundUp(mirrorSize(r)) }

func (m *mirror) close() error {
	if m.reg == nil {
		return nil
	}
	if err := m.reg.Close(); err != nil {
		return err
	}
	err := offheap.Free(m.mem, offheap.Staging)
	*m = mirror{}
	return err
}

// openRing allocates a ring that the peer may write. sparse is that of Options.
func openRing(link fabric.Link, ep fabric.Endpoint, r ring, sparse bool) (in inRing, err error) {
	size := ringStart + r.bytes()
	in.ring = r
	if in.reg, err = fabric.AllocFor(link, ep, size, fabric.AccessLocalWrite|fabric.AccessRemoteWrite); err == nil {
		in.mem = in.reg.Bytes()[:size:size]
		if !sparse {
			offheap.Populate(in.mem)
		}
	}
	return in, err
}

// memory returns the bytes that the ring takes of a Budget.
func (in *inRing) memory() int { return offheap.RoundUp(ringStart + in.bytes()) }

// take reserves n bytes of the budget. Those of the first rings are not counted.
func (z *resizing) take(n int) bool { return z.budget == nil || z.budget.take(n) }

func (z *resizing) give(n int) {
	if z.budget != nil {
		z.budget.give(n)
	}
}

// backOff makes the next ask wait.
func (z *resizing) backOff() {
	z.lapses = min(z.lapses+1, 6)
	z.skip = 1 << z.lapses
}

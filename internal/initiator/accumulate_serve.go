package initiator

import (
	"errors"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/onesided"
)

// ErrMisbehaves says that a peer asks for more than it has slots for.
var ErrMisbehaves = errors.New("the peer does not keep to the protocol")

// server is this side's end of the way in which a peer asks it to accumulate.
type server struct {
	q      *Queue
	begun  bool
	region fabric.Region // slots that the peer writes to; nil as long as there are none
}

// maxNotes bounds what a peer may have this side acknowledge at once: as many as there
// are slots, unless it does not keep to the protocol.
const maxNotes = 2 * onesided.Slots

// serve carries out the request in a slot, and has it acknowledged.
func (s *server) serve(slot int) {
	q := s.q
	if s.region == nil || slot >= onesided.Slots || q.down != nil {
		return // nobody gave the peer a slot of that number
	}
	err := onesided.Serve(q.eng.memory, s.region.Bytes()[slot*onesided.SlotSize:][:onesided.SlotSize])
	if len(q.control.list) >= maxNotes {
		q.host.Sever(ErrMisbehaves)
		return
	}
	q.counts.Served++
	q.control.push(note(noteAck, slot, onesided.StatusOf(err)))
}

// open makes the slots that a peer asks for, and tells it where they are. Without memory
// the peer's accumulates fail.
func (s *server) open() {
	if s.begun {
		return
	}
	s.begun = true
	q := s.q
	q.host.PublishSlots(func() ([]byte, error) {
		reg, err := q.link.Alloc(onesided.Slots*onesided.SlotSize, fabric.AccessLocalWrite|fabric.AccessRemoteWrite)
		if err != nil {
			return nil, err
		}
		q.eng.prog.Do(func() { s.region = reg })
		return reg.Key().Append(nil), nil
	})
}

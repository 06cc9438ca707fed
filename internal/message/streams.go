package message

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/rdv"
)

// streams is what the two directions of a channel share: the streams that carry
// messages, the memory of applications that is registered, and how the channel ended.
// A sender and a receiver know each other by nothing else.
type streams struct {
	link       fabric.Link
	ep         fabric.Endpoint
	opt        Options
	ring       *eager.Channel // messages by themselves, and gathered
	rendezvous *rdv.Channel   // descriptors of messages, and writes to advertised receives
	pins       *Pins

	// The end of the channel. err is the reason, nil while it works, and live is
	// whether it is connected and has not ended. lie is what the peer was found to lie
	// about within a callback of rendezvous: the next step of Progress fails with it.
	// endBacklog ends the messages that wait to be sent; fail calls it.
	err        error
	live       bool
	lie        error
	endBacklog func()

	// unflushed: something was posted to rendezvous that waits for its Flush.
	unflushed bool

	// advertiseFrom is how long the buffer of a receive must be in order to be advertised,
	// in bytes. The sender computes it with its own bounds, from the cost model.
	advertiseFrom int
}

// fail ends the channel: messages that wait end at once, receives when what came before
// the failure has been taken (receiver.finish), and what the link or the peer may still
// touch at Sever. The endpoint's own reason is added to one that does not say it.
func (s *streams) fail(err error) {
	if s.err != nil {
		return
	}
	switch why := s.ep.Err(); {
	case why == nil || errors.Is(err, why):
	case errors.Is(why, fabric.ErrPeerGone):
		err = why
	default:
		err = fmt.Errorf("%w: %w", err, why)
	}
	s.err, s.live = err, false
	s.endBacklog()
}

// refuse notes that the peer lies. The channel ends in the next step of Progress: this
// one runs within rendezvous.
func (s *streams) refuse(err error) {
	if s.lie == nil {
		s.lie = err
	}
}

// broken is why nothing can be fetched from the peer any more, nil while it can.
func (s *streams) broken() error { return cmp.Or(s.err, s.rendezvous.Err()) }

// flushRendezvous posts what was handed to rendezvous.
func (s *streams) flushRendezvous() {
	if !s.unflushed {
		return
	}
	s.unflushed = false
	if err := s.rendezvous.Flush(); err != nil {
		s.fail(err)
	}
}

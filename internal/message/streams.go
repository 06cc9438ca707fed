package message

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/rdv"
)

// streams is the state that the two directions of a channel share: the streams that carry
// messages, registered application memory, and the channel's error. A sender and a receiver
// interact only through it.
type streams struct {
	link       fabric.Link
	ep         fabric.Endpoint
	opt        Options
	ring       *eager.Channel // single messages, and gathers
	rendezvous *rdv.Channel   // descriptors of messages, and writes to advertised receives
	pins       *Pins

	// The end of the channel. err is the reason, nil while it works; live: it is connected
	// and has not ended. lie is a violation of the protocol found within a callback of
	// rendezvous; the next Progress fails with it. endBacklog ends the messages that wait
	// to be sent; fail calls it.
	err        error
	live       bool
	lie        error
	endBacklog func()

	// unflushed: something was posted to rendezvous and needs its Flush.
	unflushed bool

	// advertiseFrom is the least length in bytes of a receive's buffer for an
	// advertisement, if the buffer is registered; advertisePrivate, if it is not. The sender
	// computes them with its own bounds, from the cost model.
	advertiseFrom, advertisePrivate int
}

// register registers the memory of o, unless it is to be staged.
func (s *streams) register(o *Out) error {
	if s.opt.Staged {
		return errStaged
	}
	return o.register(s.pins)
}

// unregister ends the registrations of a message.
//
// Hot path.
func (s *streams) unregister(o *Out) {
	s.pins.release(&o.pin)
	if o.rails != nil {
		o.releaseRails(s.opt.Rails)
	}
}

// large reports whether in is long enough to be advertised.
func (s *streams) large(in *In) bool {
	if in.Remote {
		return len(in.Buf) >= s.advertiseFrom
	}
	return len(in.Buf) >= s.advertisePrivate
}

// railsFrom is the least size in bytes of a message that is read over several connections. It is
// not written to an advertised receive then, which saves the latency of the announcement: 128 KiB
// take ten times as long at 10 GB/s.
const railsFrom = 128 << 10

// railed reports whether a message of n bytes may use several connections.
func (s *streams) railed(n int) bool {
	return n >= railsFrom && s.opt.Rails != nil && s.rendezvous.ReadsRails()
}

// fail ends the channel: waiting messages end at once, receives when the messages before
// the failure have been delivered (receiver.finish), and operations whose memory the link
// or the peer may still access at Sever. If err does not contain the endpoint's own reason,
// that is added.
func (s *streams) fail(err error) {
	if s.err != nil {
		return
	}
	err = blame(err)
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

// refuse records a violation of the protocol by the peer. The channel ends in the next
// Progress, because this one runs within rendezvous.
func (s *streams) refuse(err error) {
	if s.lie == nil {
		s.lie = err
	}
}

// broken returns why nothing can be fetched from the peer any longer, or nil if it can.
func (s *streams) broken() error { return cmp.Or(s.err, s.rendezvous.Err()) }

// flushRendezvous posts the pending requests of rendezvous.
func (s *streams) flushRendezvous() {
	if !s.unflushed {
		return
	}
	s.unflushed = false
	if err := s.rendezvous.Flush(); err != nil {
		s.fail(err)
	}
}

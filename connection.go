package rma

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
)

// reportDown notes the end of a connection that the link reports, with the
// endpoint's own reason.
func (p *Peer) reportDown(err error) {
	if p.ep != nil {
		switch why := p.ep.Err(); {
		case why != nil && errors.Is(err, fabric.ErrDown):
			err = why // which is what ErrDown asks to be looked up
		case why != nil:
			err = because(err, why)
		}
	}
	if err == nil {
		err = fabric.ErrDown
	}
	p.downWith(err)
}

// because joins an error with its cause, in one line, and says nothing twice.
func because(err, cause error) error {
	switch {
	case err == nil:
		return cause
	case cause == nil || errors.Is(err, cause):
		return err
	}
	for _, s := range []error{ErrPeerGone, ErrRemoteAccess, ErrFlushed} {
		if errors.Is(err, s) && errors.Is(cause, s) {
			return cause
		}
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// downWith notes that the connection with p is no more, and fails what has not
// been posted. What has been comes back flushed.
//
// That the peer is gone is the better reason, also when it comes later: a device
// refuses access to a dying process before anybody knows that it dies.
func (p *Peer) downWith(err error) {
	if p.down == nil || errors.Is(err, ErrPeerGone) && !errors.Is(p.down, ErrPeerGone) && !errors.Is(p.down, ErrClosed) {
		p.down = err
		if !errors.Is(err, ErrPeerGone) && !errors.Is(err, ErrPeerHung) && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNoConnection) {
			p.down = because(ErrFlushed, err)
		}
		if s := stateOf(err); s != 0 && !p.own {
			p.eng.watches.tell(PeerEvent{Rank: p.rank, State: s, Err: p.down})
		}
	}
	if p.noticed != nil {
		close(p.noticed)
		p.noticed = nil
	}
	p.eng.proto.one.down(p)
	p.eng.proto.hub.down(p)
}

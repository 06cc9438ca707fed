package message

import (
	"fmt"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/rdv"
)

// Kinds of ring messages (eager.Envelope.Kind).
const (
	kindPlain  = 1 // one message; Meta is its tag and the low half of its number
	kindGather = 2 // a gather of messages without tags (0)
	kindTagged = 3 // a gather whose first segment holds the tags of the others
)

func meta(tag uint32, seq uint64) uint64 { return uint64(tag)<<32 | seq&0xffffffff }

// Reasons why an advertised receive is declined.
const (
	// whySpoken: a message that goes another way takes the receive, or is too long
	// for it.
	whySpoken = 0

	// whyLate: a message that was under way before may take it. The other bits are
	// the low ones of the number of the last such message.
	whyLate    = 1 << 31
	lateNumber = whyLate - 1
)

// Note of an advertised receive: any tag, and how many late answers its maker had heard
// of.
const (
	noteAny   = 1 << 31
	noteEpoch = noteAny - 1
)

// tokens name things under way by small numbers, from 1, that the peer sends back.
// Transfers are announced under the token of the list of their messages, destinations
// advertised under that of their receive.
type tokens[T any] struct {
	held []*T // by token less one
	free []uint32
}

// used is how many tokens are out.
func (t *tokens[T]) used() int { return len(t.held) - len(t.free) }

func (t *tokens[T]) put(x *T) (token uint64) {
	if len(t.free) == 0 {
		t.free = append(t.free, uint32(len(t.held)))
		t.held = append(t.held, nil)
	}
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	t.held[i] = x
	return uint64(i) + 1
}

func (t *tokens[T]) take(token uint64) *T {
	i := uint32(token - 1)
	x := t.held[i]
	t.held[i] = nil
	t.free = append(t.free, i)
	return x
}

// setupVersion changes with anything that two sides must agree on.
const setupVersion = 2 // 1: descriptors came in the order of their messages

// parseSetup reads what Channel.Setup of the peer made. It is not trusted; errors wrap
// ErrSetup.
func parseSetup(b []byte) (ring eager.Setup, rendezvous rdv.Setup, err error) {
	if len(b) == 0 || b[0] != setupVersion {
		return ring, rendezvous, fmt.Errorf("%w: version %v, want %d: both sides must run the same release", ErrSetup, b[:min(1, len(b))], setupVersion)
	}
	ring, b, err = eager.ParseSetup(b[1:])
	if err == nil {
		rendezvous, b, err = rdv.ParseSetup(b)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrSetup, err)
	case len(b) > 0:
		err = fmt.Errorf("%w: %d bytes too many", ErrSetup, len(b))
	}
	return ring, rendezvous, err
}

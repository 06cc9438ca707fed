package message

import (
	"errors"
	"math"

	"github.com/seed33544411/rma/fabric"
)

// Whether a receive is advertised (In.ad).
const (
	adNone    uint8 = iota // it is not, or was too late
	adOpen                 // the peer may write Buf until it answers
	adSettled              // answered: the peer knows which message the receive takes
)

// advertised are the receives of this side that the peer may write to.
type advertised struct {
	*streams
	tokens[In]
	written []written // messages that wait for their turn, by rising number
	heard   uint32    // late answers
	waiting int       // receives posted that may be advertised, and are not
	dirty   bool      // something has changed since advertise considered them
	odds    odds

	// short: memory that is advertised is needed for messages that are here. It is asked
	// back, and nothing is advertised until those have been read.
	short bool
}

// written is a message that lies in the buffer of in.
type written struct {
	seq  uint64
	tag  uint32
	size uint32
	in   *In
}

// watch notes a receive that was posted: it may be advertised if it is as large as
// a message that is announced. One that uses messages in place may not: it takes
// longer ones from the ring than its buffer, so that the peer would not know. Nor
// is memory registered a second time that the caller has registered for itself alone,
// or registered at all, before the message is known, that would not be kept after.
func (a *advertised) watch(in *In) {
	if !in.Remote && (in.Registered || int64(len(in.Buf)) > a.pins.most) {
		return
	}
	if len(in.Buf) >= a.advertiseFrom && in.Use == nil && uint64(len(in.Buf)) <= math.MaxUint32 {
		in.waits = true
		a.waiting++
		a.dirty = true
	}
}

// later reports whether memory could not be registered, and can be when some of what is
// being read has come, or what is advertised was given back.
func (a *advertised) later(err error) bool {
	if err == nil || !errors.Is(err, fabric.ErrResources) || a.broken() != nil {
		return false
	}
	if a.pins.reading == 0 && a.used() > 0 {
		a.recall()
	}
	return a.pins.reading > 0 || a.used() > 0
}

// recall asks the peer to give all advertised receives back.
func (a *advertised) recall() {
	if a.short {
		return
	}
	a.short = true
	for _, in := range a.held {
		if in == nil || in.cancel {
			continue
		}
		if err := a.rendezvous.Revoke(in.adID); err != nil {
			a.fail(err)
			return
		}
	}
	a.unflushed = true
}

// unwatch notes one that is not going to be advertised, or is.
func (a *advertised) unwatch(in *In) {
	if in.waits {
		in.waits = false
		a.waiting--
	}
	a.dirty = true // those behind it may be now
}

// fromRing notes that a receive got a message of the ring.
func (a *advertised) fromRing(in *In) {
	if len(in.Buf) >= a.advertiseFrom && in.Use == nil {
		a.odds.change(in, -1)
	}
}

// announcedTo notes that a receive that could have been advertised got a message that
// was announced.
func (a *advertised) announcedTo(in *In) {
	if in.tries == 0 && (in.Remote || !in.Registered) && in.ad == adNone && in.Use == nil {
		a.odds.change(in, 1)
	}
}

// odds guesses whether an advertised receive is going to be written to: by tag, from
// what became of the last ones.
type odds struct {
	tag    [16]int8
	any    int8
	always bool // for tests
}

const mostOdds = 4

func (o *odds) at(in *In) *int8 {
	if in.Any {
		return &o.any
	}
	return &o.tag[spread(in.Tag)%uint32(len(o.tag))]
}

func (o *odds) good(in *In) bool { return *o.at(in) >= 0 || o.always }

func (o *odds) change(in *In, by int8) {
	p := o.at(in)
	*p = min(max(*p+by, -mostOdds), mostOdds)
}

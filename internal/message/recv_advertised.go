package message

import (
	"errors"
	"math"

	"github.com/seed33544411/rma/fabric"
)

// States of the advertisement of a receive (In.ad).
const (
	adNone    uint8 = iota // not advertised, or declined as late
	adOpen                 // the peer may write Buf until it answers
	adSettled              // answered: the peer knows which message the receive takes
)

// advertised holds the receives of this side that the peer may write to.
type advertised struct {
	*streams
	tokens[In]
	written []written // messages that wait for their turn, by rising number
	heard   uint32    // late answers received
	waiting int       // posted receives that may be advertised and are not
	dirty   bool      // something has changed since the last call of advertise
	odds    odds

	// short: memory that is advertised is needed for messages that have arrived. The
	// advertisements are revoked, and nothing is advertised until those messages have been
	// read.
	short bool
}

// written is a message that the peer has written to the buffer of in.
type written struct {
	seq  uint64
	tag  uint32
	size uint32
	in   *In
}

// watch considers a posted receive for advertisement: it may be advertised if it is as
// large as a message that is announced. One that uses messages in place may not: it accepts
// longer messages from the ring than its buffer, and the peer would not know. Memory that
// the caller has registered is not registered a second time, and memory that would not be
// kept registered afterwards is not registered before the message is known.
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

// later reports whether memory could not be registered now, but can be when some message in
// progress has been read, or an advertised receive was returned.
func (a *advertised) later(err error) bool {
	if err == nil || !errors.Is(err, fabric.ErrResources) || a.broken() != nil {
		return false
	}
	if a.pins.reading == 0 && a.used() > 0 {
		a.recall()
	}
	return a.pins.reading > 0 || a.used() > 0
}

// recall revokes all advertised receives.
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

// unwatch records that a receive is advertised, or will not be.
func (a *advertised) unwatch(in *In) {
	if in.waits {
		in.waits = false
		a.waiting--
	}
	a.dirty = true // receives behind it may be advertised now
}

// fromRing records that a receive got a message of the ring.
func (a *advertised) fromRing(in *In) {
	if len(in.Buf) >= a.advertiseFrom && in.Use == nil {
		a.odds.change(in, -1)
	}
}

// announcedTo records that a receive that could have been advertised got an announced
// message.
func (a *advertised) announcedTo(in *In) {
	if in.tries == 0 && (in.Remote || !in.Registered) && in.ad == adNone && in.Use == nil {
		a.odds.change(in, 1)
	}
}

// odds predicts, by tag, whether a message will be written to an advertised receive, from
// the results of the last ones.
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

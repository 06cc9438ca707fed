package message

import (
	"errors"
	"math"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/rdv"
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
	written     []written // messages that wait for their turn, by rising number
	lateAnswers uint32    // late answers received
	waiting     int       // posted receives that may be advertised and are not
	dirty       bool      // something has changed since the last call of advertise
	urgent      bool      // a receive waits that both ends would write if it were advertised
	outcomes    outcomes

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
// kept registered afterwards is not registered before the message is known. What may be read over
// several connections is not written over one.
func (a *advertised) watch(in *In) {
	if !in.Remote && (in.Registered || int64(len(in.Buf)) > a.pins.most) || a.railed(len(in.Buf)) {
		return
	}
	if a.large(in) && in.Use == nil && uint64(len(in.Buf)) <= math.MaxUint32 {
		in.waits = true
		a.waiting++
		a.dirty = true
		a.urgent = a.urgent || a.rendezvous.Shares(len(in.Buf))
	}
}

// later reports whether memory could not be registered now, but can be when some message has been
// read, one that is being read or whose memory is registered, or an advertised receive was returned.
func (a *advertised) later(err error, reads *reads, fetching map[rdv.Handle]*In) bool {
	if err == nil || !errors.Is(err, fabric.ErrResources) || a.broken() != nil {
		return false
	}
	if a.pins.reading == 0 && a.used() > 0 {
		a.recall()
	}
	return a.pins.reading > 0 || a.used() > 0 || reads.pinned(fetching)
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
		in.owed = true
	}
	a.unflushed = true
}

// answerRate is the rate in bytes per second at which a peer may take to write an advertised
// receive before it answers: an eighth of what the slowest network of a cluster moves.
const answerRate = 16 << 20

// overdue adds passed to the time that the peer has owed answers, and reports whether it owes
// one for longer than limit and the time of a write to that receive.
func (a *advertised) overdue(passed, limit time.Duration) (late bool) {
	if a.used() == 0 {
		return false
	}
	for _, in := range a.held {
		if in == nil || !in.owed {
			continue
		}
		in.owing += passed
		late = late || in.owing >= limit+time.Duration(len(in.Buf))*time.Second/answerRate
	}
	return late
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
	if a.large(in) && in.Use == nil {
		a.outcomes.change(in, -1)
	}
}

// announcedTo records that a receive that could have been advertised got an announced
// message.
func (a *advertised) announcedTo(in *In) {
	if in.tries == 0 && (in.Remote || !in.Registered) && in.ad == adNone && in.Use == nil {
		a.outcomes.change(in, 1)
	}
}

// odds predicts, by tag, whether a message will be written to an advertised receive, from
// the results of the last ones.
type outcomes struct {
	tag    [16]int8
	any    int8
	always bool // for tests
}

const maxOutcome = 4

func (o *outcomes) at(in *In) *int8 {
	if in.Any {
		return &o.any
	}
	return &o.tag[spread(in.Tag)%uint32(len(o.tag))]
}

func (o *outcomes) good(in *In) bool { return *o.at(in) >= 0 || o.always }

func (o *outcomes) change(in *In, by int8) {
	p := o.at(in)
	*p = min(max(*p+by, -maxOutcome), maxOutcome)
}

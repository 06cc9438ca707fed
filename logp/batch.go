package logp

import (
	"errors"
	"fmt"
)

// Flags describe a message.
type Flags uint64

// Flags of messages.
const (
	// Registered: the source is registered memory; it can be sent in place.
	Registered Flags = 1 << iota
	// DestRegistered: the destination is known and registered, so that a scatter places the
	// message without a registration at the receiver.
	DestRegistered
	// InPlace: the receiver uses the message in the ring, without a copy.
	InPlace
	// Urgent: is sent first, eager, if an eager message can hold it.
	Urgent
	// Joined: the source begins where the source of the preceding message in the batch
	// ends, under the same key: one read can fetch both.
	Joined
	// Apart: a scatter descriptor cannot hold the message with its neighbours in the batch, and
	// alone it is certain to be eager. It is not scattered.
	Apart

	knownFlags = 1<<6 - 1
)

// Message describes one message to the model.
type Message struct {
	Size  int64
	Flags Flags
}

// MaxMessages bounds a batch. A longer send queue is split: the gain from aggregation
// saturates long before.
const MaxMessages = 4096

// Limits holds the limits of the link and of the wire format, which are constant while the
// peer is connected. The zero value permits nothing.
type Limits struct {
	// EagerMax is the largest payload of an eager message; negative: no eager.
	EagerMax int64
	// EagerInPlace is the size from which eager sends registered messages in place, without
	// a copy at the sender; 0: never.
	EagerInPlace int64
	// EagerBlock is the size of a block of the ring: messages take whole blocks.
	EagerBlock int64
	// Ring is how much of the ring the sender may fill before it gets credit, in bytes; 0:
	// without bound. Credit is the amount after which the receiver returns credit.
	Ring, Credit int64
	// GatherMax bounds header and payload of one gather in bytes (a fraction of the ring);
	// 0: no gather.
	GatherMax int64
	// GatherCopy is the size up to which gather copies even registered messages behind its
	// header instead of using a piece for them.
	GatherCopy int64
	// MaxSGE is one more than the number of messages that a gather may send in place:
	// header and copied messages are the other piece. Below 2 gather copies all messages.
	MaxSGE int32
	// ScatterSegs is the number of messages one descriptor holds; 0: no scatter.
	ScatterSegs int32
	// Wire sizes in bytes: gather header without (c) and per message (h), the
	// same of the scatter descriptor (c, d), a read request (r).
	Header, Segment, DescSegment, ReadRequest int32
	// Cursor: a cursor word written after the data announces it.
	Cursor bool
}

// Validate checks l. Errors wrap ErrBatch.
func (l *Limits) Validate() error {
	for _, v := range [...]int64{l.EagerInPlace, l.EagerBlock, l.Ring, l.Credit, l.GatherMax, l.GatherCopy, int64(l.MaxSGE), int64(l.ScatterSegs),
		int64(l.Header), int64(l.Segment), int64(l.DescSegment), int64(l.ReadRequest)} {
		if v < 0 || v > MaxSize {
			return fmt.Errorf("%w: limits %+v: want 0 to %d", ErrBatch, *l, int64(MaxSize))
		}
	}
	for _, v := range [...]int32{l.Header, l.Segment, l.DescSegment, l.ReadRequest} {
		if v > 1<<16 {
			return fmt.Errorf("%w: wire size of %d bytes", ErrBatch, v)
		}
	}
	if l.EagerMax > MaxSize {
		return fmt.Errorf("%w: eager payload of %d bytes, at most %d", ErrBatch, l.EagerMax, int64(MaxSize))
	}
	return nil
}

// Batch is the backlog to one destination. It belongs to the caller; the package keeps no
// reference to Messages.
type Batch struct {
	Messages []Message
	Limits   Limits
	// Wait is the expected time in ns until each mode has the credit to begin, because
	// earlier batches occupy the ring. The additional wait of a batch larger than the ring
	// is computed from Limits. A Planner rounds Wait up to two bits after the leading one,
	// by less than 25 %, so that shapes repeat.
	Wait [NumModes]float64
}

// Validate checks b. Errors wrap ErrBatch.
func (b *Batch) Validate() error {
	if len(b.Messages) > MaxMessages {
		return fmt.Errorf("%w: %d messages, at most %d", ErrBatch, len(b.Messages), MaxMessages)
	}
	for i := range b.Messages {
		if m := &b.Messages[i]; uint64(m.Size) > MaxSize || m.Flags > knownFlags {
			return fmt.Errorf("%w: message %d: size %d, flags %#x", ErrBatch, i, m.Size, uint64(m.Flags))
		}
	}
	for _, w := range b.Wait {
		if !(w >= 0 && w <= MaxNS) {
			return fmt.Errorf("%w: wait %v ns", ErrBatch, b.Wait)
		}
	}
	return b.Limits.Validate()
}

// Bytes returns the sum of the sizes.
func (b *Batch) Bytes() (s int64) {
	for i := range b.Messages {
		s += b.Messages[i].Size
	}
	return s
}

// staged reports whether gather copies x behind its header.
func (l *Limits) staged(x Message) bool {
	return x.Flags&Registered == 0 || x.Size <= l.GatherCopy || l.MaxSGE < 2
}

// copied reports whether eager copies x at the sender.
func (l *Limits) copied(x Message) bool {
	return x.Flags&Registered == 0 || l.EagerInPlace == 0 || x.Size < l.EagerInPlace
}

// Sentinels for errors.Is.
var (
	ErrCurve      = errors.New("logp: invalid curve")
	ErrParams     = errors.New("logp: invalid parameters")
	ErrBatch      = errors.New("logp: invalid batch")
	ErrInfeasible = errors.New("logp: infeasible")
)

// Reasons why a mode cannot carry a message; all wrap ErrInfeasible. They are preallocated
// because planning checks often.
var (
	ErrEagerBlock   error = &infeasible{"message larger than an eager message may be"}
	ErrGatherRing   error = &infeasible{"message and header larger than a gather may be"}
	ErrScatterOff   error = &infeasible{"link takes no scatter descriptors"}
	ErrApart        error = &infeasible{"small message with a descriptor of its own"}
	ErrUnregistered error = &infeasible{"memory not registered, and the cost of registering unknown"}
	ErrNoMode       error = &infeasible{"no mode can carry the message"}
)

type infeasible struct{ why string }

func (e *infeasible) Error() string { return "logp: infeasible: " + e.why }
func (e *infeasible) Unwrap() error { return ErrInfeasible }

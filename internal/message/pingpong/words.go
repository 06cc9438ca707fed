package pingpong

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/seed33544411/rma/logp"
)

// wordSize is the size of the largest control message, the outcome of a calibration.
const wordSize = 8 * (logp.ExtraTerms*logp.NumModes + 1 + logp.NumModes)

// wordTag is the tag of control messages; those of batches have tag 0.
const wordTag = 1<<32 - 1

// order is the first side's command to play a batch next: four bytes on the wire.
type order struct {
	kind  byte
	probe byte // index in the list that kind selects
	mode  logp.Mode
	trips byte
}

// Kinds of orders.
const (
	orderEnd   = iota // the outcome follows
	orderWarm         // of warm
	orderProbe        // of probes
	numOrders
)

func (o order) append(b []byte) []byte { return append(b, o.kind, o.probe, byte(o.mode), o.trips) }

// parseOrder parses an order of the first side, which is not trusted.
func parseOrder(b []byte) (o order, err error) {
	if len(b) != 4 {
		return o, fmt.Errorf("%w: order of %d bytes", ErrWrong, len(b))
	}
	o = order{b[0], b[1], logp.Mode(b[2]), b[3]}
	n := map[byte]int{orderEnd: 1, orderWarm: len(warm), orderProbe: len(probes)}[o.kind]
	if int(o.probe) >= n || o.mode >= logp.NumModes || o.trips > maxTrips {
		return o, fmt.Errorf("%w: order %v", ErrWrong, b)
	}
	return o, nil
}

// appendOutcome appends float64, little-endian: the extra terms, the number of probes, and
// the remaining errors.
func appendOutcome(b []byte, e *[logp.NumModes]logp.Extra, o *Outcome) []byte {
	add := func(f float64) { b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f)) }
	for _, x := range e {
		for _, f := range x.Terms() {
			add(f)
		}
	}
	add(float64(o.Probes))
	for _, f := range o.Error {
		add(f)
	}
	return b
}

// parseOutcome parses the output of appendOutcome, from a peer that is not trusted.
func parseOutcome(b []byte) (e [logp.NumModes]logp.Extra, o Outcome, err error) {
	if len(b) != wordSize {
		return e, o, fmt.Errorf("%w: outcome of %d bytes", ErrWrong, len(b))
	}
	next := func() float64 {
		f := math.Float64frombits(binary.LittleEndian.Uint64(b))
		b = b[8:]
		return f
	}
	for m := range e {
		var x [logp.ExtraTerms]float64
		for k := range x {
			x[k] = next()
		}
		e[m] = logp.ExtraOf(x)
	}
	n := next()
	if !(n >= 0 && n <= float64(len(probes)) && n == math.Trunc(n)) {
		return e, o, fmt.Errorf("%w: %v probes", ErrWrong, n)
	}
	o.Probes = int(n)
	for m := range o.Error {
		if o.Error[m] = next(); !(o.Error[m] >= 0 && o.Error[m] <= 1) {
			return e, o, fmt.Errorf("%w: error of %v", ErrWrong, o.Error[m])
		}
	}
	p := logp.Params{Extra: e}
	return e, o, p.Validate()
}

// tell sends a control message, and waits until its memory may be reused.
func (s *Side) tell(ctx context.Context, b []byte) error {
	at := 2 * s.opt.Span
	mem := s.reg.Bytes()[at : at+wordSize]
	o := &s.word
	o.Data, o.LKey, o.RKey, o.Registered, o.Tag, o.Done = mem[:copy(mem, b)], s.reg.LKey(), s.reg.Key().RKey, true, wordTag, &s.wordsSent
	s.ch.Send(o)
	return s.wait.until(ctx, &s.wordsSent, s.wordsSent.n+1, s.progress)
}

// hear receives the peer's control message into b.
func (s *Side) hear(ctx context.Context, b []byte) ([]byte, error) {
	at := 2*s.opt.Span + wordSize
	mem := s.reg.Bytes()[at : at+wordSize]
	in := &s.answer
	k := length{&s.wordsSent, 0}
	in.Buf, in.LKey, in.Registered, in.Tag, in.Done = mem, s.reg.LKey(), true, wordTag, &k
	want := s.wordsSent.n + 1
	s.ch.Recv(in)
	if err := s.wait.until(ctx, &s.wordsSent, want, s.progress); err != nil {
		return nil, err
	}
	return b[:copy(b, mem[:k.n])], nil
}

// length is a counter that records the length of the message.
type length struct {
	*counter
	n int
}

// Complete implements message.Completer.
func (l *length) Complete(tag uint32, n int, err error) {
	l.n = n
	l.counter.Complete(tag, n, err)
}

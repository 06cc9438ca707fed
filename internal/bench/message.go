package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/message/pingpong"
	"github.com/seed33544411/rma/logp"
)

// Messages are measured over the channel that the engine uses (package message). The
// measuring loop itself polls it.

const (
	// messageTag is the first of the channel's three WR tags; eagerTag and 0 are
	// taken.
	messageTag = 8

	// controlTag is the tag of questions and answers. No data has it: data tags are less
	// than maxTags.
	controlTag = 1<<32 - 2
)

// Budgets of sampling and calibration for the automatic choice; see Request.Sampling.
// They are those of package choice, for the same reasons.
const (
	DefaultSampling    = 200 * time.Millisecond
	DefaultCalibration = 500 * time.Millisecond
)

// messages is one end of the message channel.
type messages struct {
	*side
	play        *pingpong.Side // owns the channel, calibrates it
	ch          *message.Channel
	params      logp.Params
	asked       tally // control messages received
	controlSent tally // control messages sent
	answer      tally // data messages of lat received
	sent        tally // data messages sent
	recv        message.In
	send        message.Out
	ctlIn       message.In
	ctlOut      message.Out
	rkey        uint32 // of the side's region
	lucky       int    // waits that ended before a turn
}

// tally counts completions; it is a message.Completer.
type tally struct {
	n    int
	size int // of the last message
	err  error
}

// Complete implements message.Completer.
func (t *tally) Complete(_ uint32, n int, err error) {
	t.n++
	t.size = n
	if err != nil && t.err == nil {
		t.err = err
	}
}

// hasOp reports whether the request measures op.
func (r *Request) hasOp(op Op) bool {
	return slices.ContainsFunc(r.Plans, func(p Plan) bool { return p.Op == op })
}

// chooses reports whether any messages go as the model chooses.
func (r *Request) chooses() bool {
	return slices.ContainsFunc(r.Plans, func(p Plan) bool { return p.Op == Send && p.Mode == Modes[0] })
}

// openMessages opens and connects the message channel of s, and calibrates it if
// calibration is positive. Both sides call it.
func openMessages(ctx context.Context, s *side, p *logp.Params, calibration, stall time.Duration, pinned bool) error {
	play, err := pingpong.Open(ctx, s.Link, s.EP, pingpong.Options{
		First: s.Rank() == 0, Span: pingpong.CalibrationSpan, Stall: stall, Wait: Waiter(pinned),
		Channel: message.Options{IDTag: messageTag, Params: p},
	})
	if play != nil {
		s.msg = &messages{side: s, play: play, ch: play.Channel()}
		s.Claim = s.claim
	}
	if err = agree(ctx, s, wrap("open the message channel", err)); err != nil {
		return err
	}
	theirs, err := s.Exchange(ctx, play.Setup())
	if err == nil {
		err = play.Connect(theirs)
	}
	if err = agree(ctx, s, wrap("connect the message channel", err)); err != nil {
		return err
	}
	s.msg.rkey, s.msg.params = s.reg.Key().RKey, s.msg.ch.Params()
	if calibration > 0 {
		s.msg.params, _, err = play.Calibrate(ctx, s.msg.params, calibration)
		if err = agree(ctx, s, wrap("calibrate", err)); err != nil {
			return err
		}
	}
	s.msg.postControl()
	return nil
}

func (m *messages) close() error {
	if m == nil {
		return nil
	}
	return m.play.Close()
}

// setMode forces the mode of the plan, or none.
func (m *messages) setMode(p *point) error {
	var pol logp.Policy
	for mode := range logp.Mode(logp.NumModes) {
		if mode.String() == p.Mode {
			pol = logp.Policy{Forced: true, Mode: mode}
		}
	}
	return m.ch.SetPolicy(pol)
}

// ways returns the number of messages sent in each mode so far.
func (m *messages) ways() Ways {
	n := m.ch.Stats().Messages
	return Ways{Eager: n[logp.Eager], Gather: n[logp.Gather], Scatter: n[logp.Scatter]}
}

// since returns w less before.
func (w Ways) since(before Ways) Ways {
	return Ways{w.Eager - before.Eager, w.Gather - before.Gather, w.Scatter - before.Scatter}
}

// turn polls the link and progresses the channel.
// Hot path.
func (m *messages) turn() error {
	if _, err := m.Poll(); err != nil {
		return err
	}
	_, _, err := m.ch.Progress()
	return err
}

// until waits until t has counted n completions.
// Hot path.
func (m *messages) until(t *tally, n int) error {
	for m.Begin(); t.n < n; {
		if err := m.turn(); err != nil {
			return err
		}
		if t.n >= n {
			break
		}
		if err := m.Rest(); err != nil {
			return err
		}
	}
	return t.err
}

// source and target describe size bytes at offset off of the region to the channel.
func (m *messages) source(o *message.Out, off, size int, tag uint32) {
	o.Data, o.Tag = m.mem[off:off+size:off+size], tag
	o.LKey, o.RKey, o.Registered = m.reg.LKey(), m.rkey, true
}

func (m *messages) target(in *message.In, off, size int, tag uint32) {
	in.Buf, in.Tag = m.mem[off:off+size:off+size], tag
	in.LKey, in.Registered = m.reg.LKey(), true
}

// controlSize is the size of a control message: one number.
const controlSize = 8

// postControl posts the one receive for control messages.
func (m *messages) postControl() {
	m.target(&m.ctlIn, offHear, controlSize, controlTag)
	m.ctlIn.Done = &m.asked
	m.ch.Recv(&m.ctlIn)
}

// tellNumber sends a control message and waits for its completion.
func (m *messages) tellNumber(n uint64) error {
	want := m.controlSent.n + 1
	binary.LittleEndian.PutUint64(m.mem[offTell:], n)
	m.source(&m.ctlOut, offTell, controlSize, controlTag)
	m.ctlOut.Done = &m.controlSent
	m.ch.Send(&m.ctlOut)
	return m.until(&m.controlSent, want)
}

// receiveNumber returns the number of the last control message and posts the receive
// again.
func (m *messages) receiveNumber() (uint64, error) {
	if m.asked.err != nil {
		return 0, m.asked.err
	}
	if m.asked.size != controlSize {
		return 0, fmt.Errorf("%w: control message of %d bytes", ErrValidate, m.asked.size)
	}
	n := binary.LittleEndian.Uint64(m.mem[offHear:])
	m.postControl()
	return n, nil
}

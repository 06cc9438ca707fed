package sampling

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/seed33544411/rma/fabric"
)

// message is sent to the other side when the turn passes.
type message struct {
	// Verdict is the first side's result of checking the saved tables.
	Verdict verdict `json:"verdict,omitempty"`
	// Data is the sender's region for measurements, marshalled.
	Data []byte `json:"data,omitempty"`
	// Half is the sender's measurement.
	Half *Half `json:"half,omitempty"`
	// Made is the time at which the first side finished, in seconds of Unix time, so that
	// both save the same profile.
	Made int64 `json:"made,omitempty"`
	// Error is the reason why the sender gives up.
	Error string `json:"error,omitempty"`
}

type verdict string

const (
	keep    verdict = "keep"
	measure verdict = "measure"
)

// maxError bounds the length of a peer's error in messages of this side.
const maxError = 300

// The word after a message: its number and its length.
func turnWord(seq uint32, n int) uint64        { return uint64(seq)<<32 | uint64(n) }
func splitTurn(w uint64) (seq uint32, n int64) { return uint32(w >> 32), int64(uint32(w)) }

// tell sends a message, and thereby passes the turn. The word is a separate write, because
// the order inside one write is not defined. It wakes a sleeping peer.
func (s *Session) tell(m message) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(b) > mail {
		return fmt.Errorf("message of %d bytes, the mailbox holds %d", len(b), mail)
	}
	if err := s.drain(); err != nil {
		return err
	}
	return s.put(b, 1)
}

// lastWord is tell without waiting: the peer leaves when it has received the message, and
// may not acknowledge it. It is not signalled, so that no completion arrives when the link
// has another owner, and its source is not needed after the call. A link that cannot copy
// it inline is a device, which acknowledges without the peer.
func (s *Session) lastWord(m message) error {
	b, err := json.Marshal(m)
	if err != nil || len(b) > mail {
		b = []byte(`{"error":"the reason exceeds the mailbox"}`)
	}
	if max(8, len(b)) > s.caps.MaxInline {
		if err = s.put(b, 1); err == nil {
			err = s.drain()
		}
		return err
	}
	err = s.put(b, 0)
	for range lingerPolls {
		if _, e := s.p.Poll(); e != nil {
			break // the peer has left already
		}
	}
	return err
}

// lingerPolls is how often a side that has finished polls the link: links on which the
// target executes requests send the last acknowledgement in a poll.
const lingerPolls = 16

func (s *Session) put(b []byte, signalled int) error {
	s.sent++
	copy(s.mem[offOutMail:], b)
	storeWord(s.mem, offOutTurn, turnWord(s.sent, len(b)))
	body, turn := s.write(offOutMail, len(b), offMail), s.write(offOutTurn, 8, offTurn)
	turn.Flags |= fabric.FlagNotify
	if signalled > 0 {
		turn.Flags |= fabric.FlagSignaled
	}
	return s.post([]fabric.WR{body, turn}, signalled)
}

// heard returns the peer's next message if it has arrived.
func (s *Session) received() (m message, ok bool, err error) {
	w := loadWord(s.mem, offTurn)
	seq, n := splitTurn(w)
	if seq == s.listened {
		return m, false, nil
	}
	if seq != s.listened+1 || n > mail {
		return m, false, fmt.Errorf("%w: message %d of %d bytes, expected number %d of at most %d", ErrProtocol, seq, n, s.listened+1, mail)
	}
	s.listened = seq
	// A copy, because the peer may continue to write there.
	if m, err = parseMessage(bytes.Clone(s.mem[offMail : offMail+int(n)])); err != nil {
		return m, false, err
	}
	if m.Error != "" {
		return m, false, fmt.Errorf("%w: %s", ErrPeerFailed, printable(m.Error))
	}
	return m, true, nil
}

// parseMessage parses data that a peer wrote. Errors wrap ErrProtocol.
func parseMessage(b []byte) (m message, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err = d.Decode(&m)
	if err == nil {
		if _, e := d.Token(); e != io.EOF {
			err = fmt.Errorf("extra data behind the message")
		}
	}
	if err == nil && m.Half != nil {
		err = m.Half.validate()
	}
	if err != nil {
		return message{}, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return m, nil
}

// printable cuts s and replaces what could confuse a terminal.
func printable(s string) string {
	r := []rune(s)
	r = r[:min(len(r), maxError)]
	for i := range r {
		if r[i] < 0x20 || r[i] == 0x7f {
			r[i] = ' '
		}
	}
	return string(r)
}

// quiet is the bit of a ball that requests the peer to sleep until the turn passes. It is
// not answered.
const quiet = 1 << 63

// loud is a flag of bounce that makes the write notify the peer, which may be sleeping. It
// is not sent.
const loud = 1 << 62

// serve is the part of this side while the peer measures: it returns the ball and lets the
// link progress, until the peer's next message. d is how long the peer may measure.
func (s *Session) serve(d time.Duration) (message, error) {
	s.begin(d)
	still := false
	for {
		switch w := loadWord(s.mem, offPing); w {
		case s.ball:
		case s.ball | quiet:
			still = true
		case s.ball + 1:
			s.ball++
			still = false
			if err := s.bounce(0); err != nil {
				return message{}, err
			}
			s.p.Spin.Reset()
			continue
		default:
			return message{}, fmt.Errorf("%w: ball %#x, expected %#x", ErrProtocol, w, s.ball+1)
		}
		m, ok, err := s.received()
		if ok || err != nil {
			return m, err
		}
		if still && !s.caps.TargetProgress {
			if _, err = s.p.Poll(); err == nil {
				err = s.nap()
			}
		} else {
			err = s.p.Miss()
		}
		if err != nil {
			return message{}, err
		}
	}
}

// signalEvery is the number of writes of the ball per completion: below the depth of any
// queue, and rare enough to have no effect.
const signalEvery = 8

// bounce sends the ball with its current number.
// Hot path.
func (s *Session) bounce(flags uint64) error {
	storeWord(s.mem, offOutPing, s.ball|flags&^loud)
	w := &s.ping[0]
	w.Flags &^= fabric.FlagSignaled | fabric.FlagNotify
	signalled := 0
	if s.ball%signalEvery == 0 || flags != 0 {
		w.Flags |= fabric.FlagSignaled
		signalled = 1
	}
	if flags != 0 {
		w.Flags |= fabric.FlagNotify
	}
	return s.post(s.ping[:], signalled)
}

// throw sends the ball and waits until it returns.
func (s *Session) throw() error {
	return s.throwWith(0)
}

// wake sends the ball to a sleeping peer.
func (s *Session) wake() error { return s.throwWith(loud) }

func (s *Session) throwWith(flags uint64) error {
	s.ball++
	if err := s.bounce(flags); err != nil {
		return err
	}
	s.begin(0)
	for {
		switch w := loadWord(s.mem, offPing); w &^ quiet {
		case s.ball:
			return nil
		case s.ball - 1:
		default:
			return fmt.Errorf("%w: ball %#x was returned as %#x", ErrProtocol, s.ball, w)
		}
		if err := s.p.Miss(); err != nil {
			return err
		}
	}
}

package coll

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/seed33544411/rma"
)

// Kinds of control frames; docs/wire.md has the layouts.
const (
	frameJoin   = 1 // to the lowest rank of a new team: name, the sender's number of it
	frameLeave  = 2 // the sender has given the new team up
	frameAsk    = 3 // from the lowest rank: all have joined; answered by ready or leave
	frameReady  = 4 // the sender waits for the table
	frameTable  = 5 // from the lowest rank: the members and their numbers
	frameRefuse = 6 // from the lowest rank: there will be no such team
	frameRevoke = 7 // the team with the receiver's number is revoked

	// About the team that follows the revoked one with the receiver's number.
	frameView   = 8  // the sender calls Shrink; the members that it does not reach
	frameOut    = 9  // a rank takes no part
	frameFollow = 10 // the members and their numbers
)

const maxName = 255

// frame is a control frame.
type frame struct {
	kind    byte
	number  uint32 // join: the sender's; revoke, view, out, follow: the receiver's
	nonce   uint64 // of the sender's call of New; view: the sender's numbers, of the old team and, from bit 32 on, of the new one
	members uint64 // join, revoke: digest of the ranks of the team, or 0; view: bit 0: complete; then the number of the call
	name    string
	why     reason      // refuse, revoke, out
	table   [][2]uint32 // table, follow: rank of the job, number; view: rank, state; out: rank, the one because of which
}

const frameFixed = 24 + reasonSize + 2

// maxFrame is the size of the largest frame in a job of n ranks.
func maxFrame(n int) int { return frameFixed + maxName + 8*n }

func (f *frame) bytes() []byte {
	b := make([]byte, 24, maxFrame(len(f.table)))
	b[0], b[1] = version, f.kind
	binary.LittleEndian.PutUint32(b[4:], f.number)
	binary.LittleEndian.PutUint64(b[8:], f.nonce)
	binary.LittleEndian.PutUint64(b[16:], f.members)
	b = f.why.append(b)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(f.name)))
	b = append(b, f.name...)
	for _, m := range f.table {
		b = binary.LittleEndian.AppendUint32(b, m[0])
		b = binary.LittleEndian.AppendUint32(b, m[1])
	}
	return b
}

func parseFrame(b []byte) (f frame, ok bool) {
	if len(b) < frameFixed || b[0] != version || b[1] < frameJoin || b[1] > frameFollow || b[2] != 0 || b[3] != 0 {
		return f, false
	}
	f.kind = b[1]
	f.number = binary.LittleEndian.Uint32(b[4:])
	f.nonce = binary.LittleEndian.Uint64(b[8:])
	f.members = binary.LittleEndian.Uint64(b[16:])
	f.why = parseReason(b[24:])
	n := int(binary.LittleEndian.Uint16(b[24+reasonSize:]))
	b = b[frameFixed:]
	if n > maxName || n > len(b) || (len(b)-n)%8 != 0 {
		return f, false
	}
	f.name, b = string(b[:n]), b[n:]
	for ; len(b) > 0; b = b[8:] {
		f.table = append(f.table, [2]uint32{binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])})
	}
	return f, f.number <= lowBits
}

// mismatch describes two calls that differ. Calls of New have no kind.
type mismatch struct {
	ranks [2]int
	calls [2]call
	bytes [2]uint64 // of a message, expected and arrived
}

func (m mismatch) error() *MismatchError {
	e := &MismatchError{Ranks: m.ranks, m: m}
	for i, c := range m.calls {
		e.Calls[i] = c.String()
	}
	if m.calls == [2]call{} {
		e.Calls = [2]string{"New with other ranks", "New"}
		return e
	}
	if m.calls[0] == m.calls[1] {
		e.Calls[0] += fmt.Sprintf(", which expects a message of %d bytes", m.bytes[0])
		e.Calls[1] += fmt.Sprintf(", which sends one of %d bytes", m.bytes[1])
	}
	return e
}

// reason is why a team was revoked, as frames contain it.
type reason struct {
	code byte
	op   kind // 0: none
	rank uint32
	m    mismatch
}

const reasonSize = 8 + 8 + 32 + 16

// causes are the errors that frames tell apart, by code.
var causes = []error{nil, rma.ErrPeerGone, rma.ErrPeerHung, rma.ErrGivenUp, rma.ErrRemoteAccess, rma.ErrNoConnection, rma.ErrResources,
	rma.ErrFlushed, ErrProtocol, rma.ErrClosed, rma.ErrBusy, ErrMismatch}

// errOther stands for causes that frames do not tell.
var errOther = errors.New("an operation of a rank failed")

// reasonOf returns the reason of an error. own is this rank.
func reasonOf(err error, own int) (r reason) {
	r.rank = uint32(own)
	for i, c := range causes[1:] {
		if errors.Is(err, c) {
			r.code = byte(i + 1)
			break
		}
	}
	if pe := (*rma.PeerError)(nil); errors.As(err, &pe) {
		r.rank = uint32(pe.Rank)
		for k := kindBarrier; k < numKinds; k++ {
			if pe.Op == k.String() {
				r.op = k
			}
		}
	}
	if me := (*MismatchError)(nil); errors.As(err, &me) {
		r.m = me.m
	}
	return r
}

// error returns the error of a reason that a rank has told, in a job of size ranks.
func (r reason) error(from, size int) error {
	if r.code == byte(len(causes)-1) {
		for i, k := range r.m.ranks {
			if k >= size {
				r.m.ranks[i] = from
			}
		}
		return r.m.error()
	}
	e := &rma.PeerError{Rank: int(r.rank), Op: "collective", Err: errOther}
	if e.Rank >= size {
		e.Rank = from
	}
	if r.op > 0 {
		e.Op = r.op.String()
	}
	if c := int(r.code); c > 0 && c < len(causes) {
		e.Err = causes[c]
	}
	return e
}

func (r reason) append(b []byte) []byte {
	b = append(b, r.code, byte(r.op), 0, 0)
	b = binary.LittleEndian.AppendUint32(b, r.rank)
	for _, k := range r.m.ranks {
		b = binary.LittleEndian.AppendUint32(b, uint32(k))
	}
	for _, c := range r.m.calls {
		var w [16]byte
		c.put(w[:])
		b = append(b, w[:]...)
	}
	for _, n := range r.m.bytes {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

// parseReason parses the first reasonSize bytes of b. What is not valid is left out.
func parseReason(b []byte) (r reason) {
	r.code, r.rank = b[0], binary.LittleEndian.Uint32(b[4:])
	if k := kind(b[1]); k < numKinds {
		r.op = k
	}
	for i := range 2 {
		r.m.ranks[i] = int(binary.LittleEndian.Uint32(b[8+4*i:]))
		r.m.calls[i], _ = parseCall(b[16+16*i:])
		if r.m.calls[i].kind >= numKinds || r.m.calls[i].op >= numOps || r.m.calls[i].alg >= numAlgorithms {
			r.m.calls[i] = call{}
		}
		r.m.bytes[i] = binary.LittleEndian.Uint64(b[48+8*i:])
	}
	return r
}

// tell tells the other members that the team is revoked. Each member does so when it hears
// of it: all hear of it although some may die meanwhile.
func (s *service) tell(t *team, why error) {
	for i, r := range t.ranks {
		if i != t.rank && t.numbers != nil {
			f := frame{kind: frameRevoke, number: t.numbers[i], why: reasonOf(why, s.eng.Rank())}
			s.eng.Peer(r).SendFunc(tagControl, f.bytes(), nil)
		}
	}
}

// control takes control frames.
func (s *service) control(m rma.Envelope, parts [][]byte) {
	f, ok := parseFrame(slices.Concat(parts...))
	if !ok || s.floods(m.From, &f) || f.kind >= frameView && !f.sane(s.eng.Size()) {
		s.lose(m.From, ErrProtocol, false)
		return
	}
	switch f.kind {
	case frameRevoke:
		s.mu.Lock()
		t := s.teams[f.number]
		s.mu.Unlock()
		if t != nil {
			t.revokedBy(m.From, f.members, f.why.error(m.From, s.eng.Size()))
		}
	case frameView, frameOut, frameFollow:
		s.shrink(m.From, &f)
	default:
		s.form(m.From, &f)
	}
}

package ibv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/verbs"
)

// The last port of an endpoint is another link's endpoint, its carrier (fabric.Carried): it is the last attempt at a
// connection, when no port of verbs is left. The requests that are kept are posted to it with the numbers of their
// slots, all signalled; its completions free the slots as the device's do. Atomics of the device become empty writes, which
// complete with StatusApart: the carrier's would not exclude them. Those that the peer's processor executes (letter.go) are
// the carrier's own from then on: those in flight that the peer has read are answered in the letter of kindReady, the others
// are posted to the carrier. The endpoint ends with its carrier, unless it returns to a port before (goback.go).

// carriedBit marks the IDs of carriers. Below it are generation and place of the endpoint, as in the IDs of its requests.
const carriedBit = 1 << 31

// carrier is an endpoint of another link in the place of a queue pair. The owner's, after it is connected.
type carrier struct {
	ep        fabric.Endpoint
	id        uint32 // of ep
	sent, got uint32 // notifications of this side and of the peer
	lost      bool
}

// close ends the carrier, if there is one.
func (c *carrier) close() {
	if c != nil {
		_ = c.ep.Close()
	}
}

var errUncarried = errors.New("the connection over the other link is lost as well")

// ending reports, when the queue pair is stopped, whether the next attempt is the last one, over the carrier: as many queue pairs in a row as there are
// ports have failed in silence, or many for another reason, as of rdma_rxe without an address.
func (r *resumption) ending() bool {
	if r.carries && r.stuck > maxStuck/2 {
		return true
	}
	if !errors.Is(r.why, fabric.ErrPeerGone) || errors.Is(r.why, errRecalled) {
		return false
	}
	if r.e.head != r.silentAt {
		r.silences, r.silentAt = 0, r.e.head
	}
	r.silences++
	return r.carries && r.silences >= r.ports
}

// carried is the last attempt.
func (r *resumption) carried(ctx context.Context, by *fabric.Courier) error {
	e := r.e
	r.heard, r.ready = r.heard && r.next == r.theirs.attempt, false
	if err := r.own(by, r.another); err != nil {
		return err
	}
	r.mine.kind, r.mine.attempt, r.mine.more, r.mine.names, r.mine.carrier = kindStopped, lastAttempt, false, nil, e.carry.ep.Address()
	if err := by.Send(ctx, r.mine.append(nil)); err != nil {
		return err
	}
	if err := r.answered(ctx, by); err != nil {
		return err
	}
	if err := r.hear(ctx, by, &r.heard); err != nil {
		return err
	}
	if err := e.carry.ep.Connect(ctx, r.theirs.carrier); err != nil {
		if errors.Is(err, fabric.ErrBadAddress) {
			err = errors.Join(errBadLetter, err)
		}
		return fmt.Errorf("%w: %w", errNoPort, err)
	}
	if err := caughtUp(ctx, r, by); err != nil {
		return err
	}
	if err := r.own(by, func() error {
		if err := r.adopt(); err != nil {
			return err
		}
		r.mine.answers = e.mail.untold()
		return nil
	}); err != nil {
		return err
	}
	if len(r.mine.answers) > maxAsks {
		return errBadTally
	}
	r.mine.kind = kindReady
	if err := by.Send(ctx, r.mine.append(nil)); err != nil {
		return err
	}
	if err := r.hear(ctx, by, &r.ready); err != nil {
		return err
	}
	return r.own(by, r.carriedOn)
}

// another leaves the queue pair, none of whose requests is in flight, for a carrier that is to be connected.
func (r *resumption) another() error {
	e := r.e
	l := e.l
	_ = e.qp.ToErr()
	l.mu.Lock()
	retag(e)
	l.mu.Unlock()
	if e.over != nil {
		e.over.leave(e.room)
		e.mu.Lock()
		e.over = nil
		e.mu.Unlock()
	}
	waiting := l.q.Len() // of the queue pair before; the carrier's may come
	l.q.Reserve(waiting)
	l.giveBack += waiting
	r.renewed, r.failed, r.deaf = true, false, false
	id := carriedBit | uint32(e.gen)<<16 | e.idx
	ep, err := l.carriers(fabric.EndpointOptions{ID: id, Depth: e.queue, PeerTimeout: e.opt.PeerTimeout})
	if err != nil {
		return fmt.Errorf("%w: %w", errNoPort, errors.Join(err, r.refused))
	}
	e.carry = &carrier{ep: ep, id: id}
	return nil
}

// carriedOn is resume, of an endpoint that has got a carrier.
func (r *resumption) carriedOn() error {
	e := r.e
	if r.failed {
		return errUncarried
	}
	if !e.mail.told(r.theirs.answers) {
		return errBadLetter
	}
	if e.state.Load() != stSuspended { // an answer has ended it
		return errOver
	}
	r.leave()
	r.away.carried(r.why)
	r.list = make([]fabric.WR, chainMax)
	e.apart, r.why, r.port = false, nil, 0
	e.carried.Store(true)
	e.state.Store(stConnected)
	e.l.push(fabric.Completion{EP: e.id, Op: fabric.OpPath})
	r.carryOn()
	return nil
}

// carryOn posts what the carrier has not got yet.
// Hot path, of endpoints with a carrier.
func (r *resumption) carryOn() {
	e := r.e
	for r.posted != e.tail && (r.leaving || e.state.Load() == stConnected) {
		n := min(int(e.tail-r.posted), chainMax)
		for i := range n {
			r.carriedAs(r.posted+uint32(i), &r.list[i])
		}
		k, err := e.carry.ep.Post(r.list[:n])
		for i := range k {
			if r.list[i].Flags&fabric.FlagNotify != 0 {
				e.carry.sent++
			}
		}
		if r.posted += uint32(k); err != nil && !errors.Is(err, fabric.ErrDown) { // that it is down comes as a completion
			e.down(fabric.Completion{Op: fabric.OpDown, Status: fabric.StatusUnknown}, 0, false)
		}
		if k < n {
			return
		}
	}
}

// carriedAs makes w of a request that is kept.
func (r *resumption) carriedAs(seq uint32, w *fabric.WR) {
	x := &r.of(seq).wr
	e := r.e
	*w = fabric.WR{ID: uint64(seq), Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Local: pieces(x.SGL), RemoteAddr: x.RemoteAddr, RKey: x.RKey}
	if x.Flags&verbs.SendFence != 0 {
		w.Flags |= fabric.FlagFence
	}
	switch x.Op {
	case verbs.OpRead:
		w.Op = fabric.OpRead
	case verbs.OpFetchAdd, verbs.OpCmpSwap:
		s := &e.slots[seq&e.mask()]
		if heal(e, s); !e.l.noAtomics {
			s.flags |= slotApart
			w.Local = nil
			break
		}
		w.Op, w.Compare, w.Operand = s.op, x.Compare, x.Operand
	case verbs.OpWriteWithImm, verbs.OpSendWithImm:
		w.Flags |= fabric.FlagNotify
		w.Imm = x.Imm
	case verbs.OpSend:
		if len(x.SGL) > 0 {
			e.mail.carriedAs(seq, w)
			return
		}
	}
	if x.Flags&verbs.SendInline != 0 || e.mail.holds(x) {
		w.Flags |= fabric.FlagInline
	}
}

// unread reports whether the peer has not read the letter in a slot, as adopt knows.
func (m *mailbox) unread(seq uint32) bool {
	return int32(seq-m.e.head) >= 0 && len(m.e.again.of(seq).wr.SGL) > 0
}

// untold returns the answers that the peer has not read.
func (m *mailbox) untold() (answers []letter) {
	if m == nil {
		return nil
	}
	for i := m.e.head; i != m.e.tail; i++ {
		if m.e.slots[i&m.e.mask()].flags&slotAnswer != 0 && m.unread(i) {
			x, _ := readLetter(m.sent(i))
			answers = append(answers, x)
		}
	}
	return answers
}

// sent returns the letter in a slot.
func (m *mailbox) sent(seq uint32) []byte {
	return m.mem[int(seq&m.e.mask())*letterSize:][:letterSize]
}

// holds reports whether the payload of a request is in the mailbox, whose memory the carrier does not know.
func (m *mailbox) holds(x *verbs.SendWR) bool {
	return m != nil && len(x.SGL) == 1 && x.SGL[0].LKey == m.reg.LKey()
}

// carriedAs makes w of the letter in a slot, which the peer has not read: the carrier does what it asks for. Answers were
// told, and are empty writes.
func (m *mailbox) carriedAs(seq uint32, w *fabric.WR) {
	w.Local = nil
	x, _ := readLetter(m.sent(seq))
	switch x.kind {
	case letterNotify:
		w.Flags |= fabric.FlagNotify
		w.Imm = x.key
	case letterFetchAdd, letterCompareSwap:
		for i := range m.asks {
			if a := &m.asks[i]; a.seq == seq {
				w.Op, w.RemoteAddr, w.RKey, w.Compare, w.Operand = a.op, x.addr, x.key, x.compare, x.operand
				w.Local = []fabric.SGE{a.local}
			}
		}
	}
}

// told takes the peer's answers to the atomics that it has executed, in order. It returns false if there are more or fewer.
func (m *mailbox) told(answers []letter) bool {
	if m == nil {
		return len(answers) == 0
	}
	for i := range m.asks {
		if a := &m.asks[i]; a.done || m.unread(a.seq) {
			continue
		}
		if len(answers) == 0 {
			return false
		}
		m.asks[i].answered(&answers[0])
		answers = answers[1:]
	}
	m.settle()
	return len(answers) == 0
}

// carriedOut says that the carrier has completed the request in a slot.
// Hot path, of endpoints with a carrier.
func (m *mailbox) carriedOut(seq uint32) {
	if m == nil {
		return
	}
	for i := range m.asks {
		if a := &m.asks[i]; a.seq == seq && !a.done {
			a.done = true
			if cell := m.e.l.cellOf(a.local); cell != nil {
				a.value = binary.NativeEndian.Uint64(cell)
			}
		}
	}
}

var _ fabric.Carried = (*Link)(nil)

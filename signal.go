package rma

import (
	"encoding/binary"

	"github.com/seed33544411/rma/fabric"
)

// SignalOp is what a signal does to the word that the target waits on.
type SignalOp uint8

// Operations of signals.
const (
	SignalSet SignalOp = iota // the word becomes the value
	SignalAdd                 // the value is added to it, atomically as FetchAdd does
)

// Cond is what WaitSignal compares the word with its value for. Words and values
// are unsigned.
type Cond uint8

// Conditions.
const (
	EQ Cond = iota // equal
	NE             // not equal
	GE             // greater or equal
	GT             // greater
	LE             // less or equal
	LT             // less
)

func (c Cond) holds(word, value uint64) bool {
	switch c {
	case EQ:
		return word == value
	case NE:
		return word != value
	case GE:
		return word >= value
	case GT:
		return word > value
	case LE:
		return word <= value
	}
	return word < value
}

// PutSignal copies src to dst, and then changes the 8-byte word at sig, which
// must lie on a multiple of 8, by op with value: a rank that has seen the word
// changed, with WaitSignal, sees the data. It wakes the target if it sleeps there. The
// request is complete when both have taken place. It does not allocate or
// block, and data and flag are handed to the link together.
// Hot path.
func (p *Peer) PutSignal(dst Remote, src Buffer, sig Remote, op SignalOp, value uint64) Request {
	o := newOp(p, kindPutSignal)
	x := o.extend()
	var err error
	if src.n > 0 {
		if uint64(src.n) <= p.max {
			if o.sge, err = src.sge(p.eng, p.link); err == nil {
				o.remote, o.rkey, err = p.reach(dst, uint64(src.n), fabric.AccessRemoteWrite)
			}
		} else {
			err = p.long(o, dst, src)
		}
	}
	if err != nil {
		return p.drop(o, err)
	}
	return p.signal(o, x, sig, op, value)
}

// Signal changes the word at sig as PutSignal does, after all that was handed in for
// the peer before. It does not allocate or block.
// Hot path.
func (p *Peer) Signal(sig Remote, op SignalOp, value uint64) Request {
	o := newOp(p, kindPutSignal)
	return p.signal(o, o.extend(), sig, op, value)
}

// signal hands in o with its flag. The data, if any, is set.
func (p *Peer) signal(o *op, x *more, sig Remote, op SignalOp, value uint64) Request {
	need := fabric.AccessRemoteWrite
	if op == SignalAdd {
		need = fabric.AccessRemoteAtomic
	}
	addr, rkey, err := p.reach(sig, 8, need)
	switch {
	case err != nil:
	case addr%8 != 0:
		err = ErrAlign
	case op > SignalAdd:
		err = ErrInvalid
	}
	if err != nil {
		return p.drop(o, err)
	}
	x.flag = flag{addr: addr, rkey: rkey, add: op == SignalAdd}
	o.operand = value
	if o.sge.Len == 0 && x.cur.Len() == 0 {
		x.phase = phaseFlag
	}
	return p.handIn(o)
}

// flag is the word that a PutSignal changes.
type flag struct {
	addr uint64
	rkey uint32
	add  bool
}

// phase is how far an operation of several steps has come.
type phase uint8

const (
	phaseData   phase = iota
	phaseFlag         // of a PutSignal: the flag
	phaseNotify       // where nothing else wakes the target
	phaseEnd
)

// after returns the phase that follows one.
func (o *op) after(ph phase) phase {
	switch {
	case o.kind != kindPutSignal:
		return phaseEnd
	case ph == phaseData:
		return phaseFlag
	case ph == phaseFlag && o.more.flag.add && !o.peer.wakes:
		return phaseNotify // an atomic cannot notify by itself
	}
	return phaseEnd
}

// flag makes the request that changes the word of a PutSignal; false if there is
// no slot now.
func (t *initiator) flag(p *Peer, o *op, wr *fabric.WR) bool {
	if !t.slot(o) {
		return false
	}
	x := o.more
	s := &t.slots[p.link]
	mem := s.bytes(o.slot)
	wr.Local = t.sges[t.used : t.used+1 : t.used+1]
	wr.Local[0] = fabric.NewSGE(mem, s.region.LKey())
	wr.RemoteAddr, wr.RKey = x.flag.addr, x.flag.rkey
	t.used++
	if x.flag.add {
		wr.Op, wr.Operand = fabric.OpFetchAdd, o.operand
	} else {
		binary.NativeEndian.PutUint64(mem, o.operand)
		if p.inline {
			wr.Flags |= fabric.FlagInline
		}
		if !p.wakes {
			wr.Flags |= fabric.FlagNotify
			wr.Imm = note(noteSignal, 0, 0)
		}
	}
	x.phase = o.after(phaseFlag)
	return true
}

// notify makes an empty request that notifies the target.
func (t *initiator) notify(_ *Peer, o *op, wr *fabric.WR) {
	wr.Flags |= fabric.FlagNotify
	wr.Imm = note(noteSignal, 0, 0)
	o.more.phase = o.after(phaseNotify)
}

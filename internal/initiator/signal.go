package initiator

import (
	"encoding/binary"

	"github.com/seed33544411/rma/fabric"
)

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

// after returns the phase of o that follows ph.
func (ph phase) after(o *Op) phase {
	switch {
	case o.kind != PutSignal:
		return phaseEnd
	case ph == phaseData:
		return phaseFlag
	case ph == phaseFlag && o.more.flag.add && !o.q.wakes:
		return phaseNotify // an atomic cannot notify by itself
	}
	return phaseEnd
}

// flag makes the request that changes the word of a PutSignal; false if there is
// no slot now.
func (c *chain) flag(q *Queue, o *Op, wr *fabric.WR) bool {
	s := &q.link.results
	if !s.take(o) {
		return false
	}
	x := o.more
	wr.Local = c.piece(s.sge(o.slot))
	wr.RemoteAddr, wr.RKey = x.flag.addr, x.flag.rkey
	if x.flag.add {
		wr.Op, wr.Operand = fabric.OpFetchAdd, o.operand
	} else {
		binary.NativeEndian.PutUint64(s.bytes(o.slot), o.operand)
		if q.inline {
			wr.Flags |= fabric.FlagInline
		}
		if !q.wakes {
			notify(wr)
		}
	}
	x.phase = phaseFlag.after(o)
	return true
}

// notify has a request notify the target of a signal.
func notify(wr *fabric.WR) {
	wr.Flags |= fabric.FlagNotify
	wr.Imm = note(noteSignal, 0, 0)
}

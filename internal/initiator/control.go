package initiator

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/onesided"
)

// Notifications of one-sided operations have notifyMagic in the upper half of their
// immediate value, where those of message channels have 0; see docs/wire.md.
const notifyMagic = 0x5241

// Kinds of notifications.
const (
	noteSignal  = iota // a word changed that this side may be waiting for
	noteRequest        // a slot holds a request
	noteAck            // a request was executed
	noteOpen           // the peer requests slots
	noteGroup          // a slot holds a group
)

// noteProbe marks an entry of the control list that is not a notification but a read of the
// peer's word.
const noteProbe = 0

// Work request IDs of the entries of a control list; those of operations are small numbers.
const (
	noteID  = 1 << 47
	probeID = 1 << 46
)

// note returns the immediate value of a notification.
func note(kind, slot int, st onesided.Status) uint32 {
	return notifyMagic<<16 | uint32(kind)<<12 | uint32(slot)<<8 | uint32(st)
}

// IsNotification reports whether c is a notification for Queue.Notified.
func IsNotification(c *fabric.Completion) bool {
	return c.Op == fabric.OpNotify && c.Imm>>16 == notifyMagic
}

// push queues a notification or a probe.
func (c *control) push(n notice) {
	c.list = append(c.list, n)
	c.q.wake()
}

// post posts the list to the link. It reports whether the link took any entry.
// Hot path.
func (c *control) post() bool {
	q := c.q
	if q.full && q.inflight > 0 {
		return false
	}
	wrs, sges := &q.eng.chain.wrs, &q.eng.chain.sges
	n := min(len(c.list), len(wrs))
	for i := range n {
		x := &c.list[i]
		if x.imm == noteProbe {
			wrs[i] = fabric.WR{ID: probeID, Op: fabric.OpRead, Flags: fabric.FlagSignaled, Local: c.sge[:], RemoteAddr: c.word.Addr, RKey: c.word.RKey}
			continue
		}
		wrs[i] = fabric.WR{ID: noteID, Op: fabric.OpWrite, Flags: fabric.FlagSignaled | fabric.FlagNotify, Imm: x.imm}
		if x.answer.Len > 0 {
			sges[i] = x.local
			wrs[i].Local, wrs[i].RemoteAddr, wrs[i].RKey = sges[i:i+1:i+1], x.answer.Addr, x.answer.RKey
		}
	}
	took, err := q.ep.Post(wrs[:n])
	q.inflight += took
	c.list = c.list[:copy(c.list, c.list[took:])]
	q.full = took < n
	if err != nil {
		q.host.Reported(err)
	}
	return took > 0
}

package rma

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/onesided"
)

// Notifications of one-sided operations have notifyMagic in the upper half of their
// immediate value, where message channels have 0; docs/wire.md has the rest.
const notifyMagic = 0x5241

// Kinds of notifications.
const (
	noteSignal  = iota // a word was changed that this side may be waiting for
	noteRequest        // there is a request in a slot
	noteAck            // a request was carried out
	noteOpen           // the peer asks for slots
)

// noteBeat is no notification: it stands among them for a read of the peer's heartbeat.
const noteBeat = 0

// note is the immediate value of a notification.
func note(kind, slot int, st onesided.Status) uint32 {
	return notifyMagic<<16 | uint32(kind)<<12 | uint32(slot)<<8 | uint32(st)
}

// notified takes a notification of a one-sided operation.
func (t *initiator) notified(p *Peer, c *fabric.Completion) {
	kind, slot, st := int(c.Imm>>12&15), int(c.Imm>>8&15), onesided.Status(c.Imm)
	switch kind {
	case noteSignal: // the words are looked at in the next step
	case noteRequest:
		t.serve(p, slot)
	case noteAck:
		t.acknowledged(p, slot, st)
	case noteOpen:
		t.openServe(p)
	}
}

// serving is this side's end of the way in which a peer asks it to accumulate.
type serving struct {
	begun  bool
	region fabric.Region // slots that the peer writes to; nil as long as there are none
}

// maxAcks bounds what a peer may have this side acknowledge at once: as many as there
// are slots, unless it does not keep to the protocol.
const maxAcks = 2 * onesided.Slots

// ackID is the work request ID of acknowledgements.
const ackID = 1 << 47

// serve carries out the request in a slot, and has it acknowledged.
func (t *initiator) serve(p *Peer, slot int) {
	if p.serves.region == nil || slot >= onesided.Slots || p.down != nil {
		return // nobody gave the peer a slot of that number
	}
	err := onesided.Serve(p.eng.memory, p.serves.region.Bytes()[slot*onesided.SlotSize:][:onesided.SlotSize])
	if len(p.acks) >= maxAcks {
		p.close()
		p.downWith(ErrPeerMisbehaves)
		return
	}
	p.counts.Served++
	p.acks = append(p.acks, note(noteAck, slot, onesided.StatusOf(err)))
	t.wake(p)
}

// openServe makes the slots that a peer asks for, and tells it where they are.
func (t *initiator) openServe(p *Peer) {
	e := p.eng
	if p.serves.begun {
		return
	}
	p.serves.begun = true
	n := p.conn.Now()
	n.Go(func() {
		var val []byte
		reg, err := e.links[p.link].Alloc(onesided.Slots*onesided.SlotSize, fabric.AccessLocalWrite|fabric.AccessRemoteWrite)
		if err == nil {
			e.prog.Do(func() { p.serves.region = reg })
			val = reg.Key().Append(val)
		}
		// Without memory the value is empty, and the peer's accumulates fail.
		if err2 := n.Publish(n.Life(), "accumulate", val); err != nil || err2 != nil && n.Life().Err() == nil {
			e.cfg.Logger.Warn("rma: no accumulates from a peer", "rank", p.rank, "memory", err, "job", err2)
		}
	})
}

// postAcks hands notifications to the link. It reports whether any were taken.
// Hot path.
func (t *initiator) postAcks(p *Peer) bool {
	if p.full && p.inflight > 0 {
		return false
	}
	n := min(len(p.acks), chain)
	for i := range n {
		if p.acks[i] == noteBeat {
			u := &p.pulse
			t.wrs[i] = fabric.WR{ID: beatID, Op: fabric.OpRead, Flags: fabric.FlagSignaled, Local: u.sge[:], RemoteAddr: u.word.Addr, RKey: u.word.RKey}
			continue
		}
		t.wrs[i] = fabric.WR{ID: ackID, Op: fabric.OpWrite, Flags: fabric.FlagSignaled | fabric.FlagNotify, Imm: p.acks[i]}
	}
	took, err := p.ep.Post(t.wrs[:n])
	p.inflight += took
	p.acks = p.acks[:copy(p.acks, p.acks[took:])]
	p.full = took < n
	if err != nil {
		p.reportDown(err)
	}
	return took > 0
}

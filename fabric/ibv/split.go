package ibv

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/verbs"
)

// split is the read or write of an endpoint that is passed to the device in pieces, see the
// package comment. There is one at a time: Post accepts nothing behind it until the device
// has its last piece; Poll posts the remaining ones as the queue makes room.
type split struct {
	list []fabric.SGE // a copy of the caller's
	at   int          // index in list of the next piece
	off  uint32       // offset in it
	wr   fabric.WR    // without Local; RemoteAddr is the start of the next piece
	left uint64       // bytes not yet posted; 0: there is no split
}

// writePackets is the number of packets in a piece of a write: few compared with the loss
// rate of a network, many compared with the cost of a request.
const writePackets = 16

// piece returns the largest size in bytes of a request of op.
func (e *endpoint) piece(op fabric.Op) uint64 {
	if op == fabric.OpRead {
		return e.packet
	}
	return writePackets * e.packet
}

// splits reports whether w must be split. A write with notification must not be, because
// the target is given its length.
func (e *endpoint) splits(w *fabric.WR) bool {
	return e.guarded && e.carry == nil && !isAtomic(w.Op) && w.Flags&fabric.FlagNotify == 0 && w.Len() > e.piece(w.Op)
}

// begin makes w the endpoint's split, and posts as many pieces as there is room for.
func (e *endpoint) begin(w *fabric.WR) {
	s := &e.split
	s.list = append(s.list[:0], w.Local...)
	s.at, s.off = 0, 0
	s.wr, s.left = *w, w.Len()
	s.wr.Local = nil
	e.l.splitting++
	e.advance()
}

// advance posts pieces of the split while there is room. If the device refuses one, except
// because of a full queue, the endpoint ends.
func (e *endpoint) advance() {
	l, s := e.l, &e.split
	for s.left > 0 {
		l.staged, l.spared = 0, 0
		start := *s
		for s.left > 0 && l.staged < chainMax && e.tail-e.head < e.depth {
			if !e.cut() {
				break // no room for lists in this chain
			}
		}
		if l.staged == 0 {
			return // queue full
		}
		k, err := pass(e, l.wrs[:l.staged])
		if k < l.staged {
			back := uint64(0)
			for _, d := range l.wrs[k:l.staged] {
				for i := range d.SGL {
					back += uint64(d.SGL[i].Len)
				}
			}
			done := start.left - s.left - back
			*s = start
			s.skip(done)
			e.giveBack(uint32(l.staged - k))
			if err != nil {
				e.down(fabric.Completion{Op: fabric.OpDown, Status: fabric.StatusUnknown}, 0, false)
			}
			return
		}
	}
	l.splitting--
}

// cut appends the next piece of the split to the chain: at most e.piece bytes, and at most
// as many local pieces as the device supports. It reports false, and changes nothing, if
// the chain has no room for a list of that length.
func (e *endpoint) cut() bool {
	l, s := e.l, &e.split
	free := l.spare[l.spared:]
	if len(free) < l.caps.MaxSGE {
		return false
	}
	sent, most := uint64(0), min(e.piece(s.wr.Op), s.left)
	k := 0
	for at, off := s.at, s.off; sent < most && k < l.caps.MaxSGE; at, off = at+1, 0 {
		p := s.list[at]
		p.Addr += uint64(off)
		p.Len = uint32(min(uint64(p.Len-off), most-sent))
		if p.Len == 0 {
			continue
		}
		free[k] = p
		k++
		sent += uint64(p.Len)
	}
	l.spared += k
	d := &l.wrs[l.staged]
	l.staged++
	*d = verbs.SendWR{ID: e.tag | uint64(e.tail), Op: verbs.OpRead, SGL: sgl(free[:k:k]), RemoteAddr: s.wr.RemoteAddr, RKey: s.wr.RKey, Flags: verbs.SendSignaled}
	t := &e.slots[e.tail&e.mask()]
	*t = slot{id: s.wr.ID, op: s.wr.Op}
	if s.wr.Op == fabric.OpRead {
		e.count(t)
	} else {
		d.Op = verbs.OpWrite
	}
	if s.wr.Flags&fabric.FlagSignaled != 0 {
		t.flags |= slotSignaled
	}
	e.tail++
	e.unasked = 0
	if s.skip(sent); s.left > 0 {
		t.flags |= slotMore
	}
	return true
}

// skip advances the split by n bytes.
func (s *split) skip(n uint64) {
	s.left -= n
	s.wr.RemoteAddr += n
	for n > 0 {
		rest := uint64(s.list[s.at].Len - s.off)
		if n < rest {
			s.off += uint32(n)
			return
		}
		n -= rest
		s.at, s.off = s.at+1, 0
	}
}

// giveBack releases the last n slots, which the device did not accept.
func (e *endpoint) giveBack(n uint32) {
	for ; n > 0; n-- {
		e.tail--
		s := &e.slots[e.tail&e.mask()]
		e.uncount(s)
		if s.flags&slotAsk != 0 {
			e.mail.asks = e.mail.asks[:len(e.mail.asks)-1]
		}
		if s.flags&slotPoison != 0 {
			e.cure()
		}
	}
}

// dropSplit drops the rest of the split and reports whether there was one.
func (e *endpoint) dropSplit() bool {
	if e.split.left == 0 {
		return false
	}
	e.split.left = 0
	e.l.splitting--
	return true
}

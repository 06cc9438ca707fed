package eager

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/gather"
)

// StageVec hands over one message whose payload is pieces, in order; it goes out
// with the next Flush, in one Post with the others. Pieces that are to be taken in
// place are read by the link from where they lie; the others are copied to the
// mirror, where neighbours share one SGE. If the result is Accepted, memory that
// was to be taken in place is the link's until Done(pos): the last request of the
// flush is signalled for it. If the channel fails it stays so until the endpoint is
// closed and drained. Pieces in place beyond MaxInPlace are copied. Does not block
// or allocate, and flushes by itself when there is no room. Errors are those of
// Send. Short path.
func (c *Channel) StageVec(e Envelope, pieces []gather.Piece) (pos uint64, res Result, err error) {
	pos, res, err = c.stageVec(&e, pieces)
	if res == Accepted || err != nil || c.first == c.staged {
		return pos, res, err
	}
	if err := c.flush(false); err != nil {
		return 0, res, err
	}
	return c.stageVec(&e, pieces)
}

// Done reports whether the link is done with all memory of messages up to the
// position that StageVec returned. It becomes true when completions
// are handed to OnCompletion, and stays so; without more traffic only if there
// were pieces to be taken in place.
func (c *Channel) Done(pos uint64) bool { return int64(c.tx.Done()-pos) >= 0 }

// MaxInPlace is how many pieces of one message may be taken in place.
func (c *Channel) MaxInPlace() int { return c.inPlace }

// GatherLimits is what one gather on this channel may be, sent with e.
func (c *Channel) GatherLimits(e Envelope) gather.Limits {
	return gather.Limits{Bytes: c.MaxPayload(e.Class, e.HasMeta), InPlace: c.inPlace}
}

// A message of m SGEs in place takes vecSGEs(m) in all and vecWRs(m) requests at
// most: one copied piece before each, one at the end of each of its three
// windows, whose lists are cut by themselves.
func vecSGEs(m int) int { return 2*m + 3 }

func vecWRs(m, maxSGE int) int { return (vecSGEs(m)+maxSGE-1)/maxSGE + 2 }

// inPlaceLimit is the largest m for which both fit.
func inPlaceLimit(batch, pieces, maxSGE int) int {
	m := (pieces - flushWRs - vecSGEs(0)) / 2
	for m > 0 && vecWRs(m, maxSGE)+flushWRs > batch {
		m--
	}
	return max(m, 0)
}

// stageVec lays a message over mirror and memory in place, and appends its
// requests. Short path.
func (c *Channel) stageVec(e *Envelope, pieces []gather.Piece) (uint64, Result, error) {
	if !c.live {
		if c.err != nil {
			return 0, NoCredit, c.err
		}
		return 0, NoCredit, ErrNotConnected
	}
	n, m := 0, 2 // two more where windows cut a piece
	for i := range pieces {
		n += len(pieces[i].Data)
		if pieces[i].InPlace {
			m++
		}
	}
	if n > c.txRing.limit(e.Class, e.HasMeta) {
		return 0, NoCredit, fmt.Errorf("send of %d bytes, limit %d: %w", n, c.txRing.limit(e.Class, e.HasMeta), ErrTooLarge)
	}
	asked := m > 2
	m = min(m, c.inPlace)
	if !c.makeRoom(vecWRs(m, c.caps.MaxSGE)+flushWRs, vecSGEs(m)+flushWRs) {
		c.stats.QueueFull++
		return 0, QueueFull, nil
	}
	k, fill := c.txRing.split(uint64(n), e.HasMeta)
	pos, ok, err := c.reserve(k, e.Class)
	if !ok {
		return 0, NoCredit, err
	}
	p := c.place(pos, k, fill, n, e.HasMeta)
	block, head := c.seal(e, &p, n)
	c.stats.InPlace += uint64(c.lay(&p, block, head, gather.NewList(pieces, m)))
	c.borrowed = c.borrowed || asked
	c.stats.Sent++
	c.stats.SentBytes += uint64(n)
	return c.tx.Head(), Accepted, nil
}

// lay appends the requests of a message in the order that request does. It
// returns how many pieces it took in place.
func (c *Channel) lay(p *place, block []byte, head int, l gather.List) int {
	r := &c.txRing
	budget := l.Left()
	first := block[r.room()-p.fill:]
	tail := len(block) - head // meta and trailer
	if p.k == 1 {
		clear(block[head-p.pad : head])
		tail += p.pad
	} else if rest := p.run - p.whole; rest > 0 {
		clear(c.out[rest-p.pad : rest])
	} else {
		clear(c.out[p.at+p.whole-p.pad : p.at+p.whole])
	}
	start := r.offset(p.pos) + r.room() - p.fill
	if c.cursorOut {
		n := l.Lay(c.sges[c.pieces:], first, c.outKey, tail)
		if p.at == 0 { // nothing behind, or only at the other end of the ring
			c.cut(n, start, p.pos, p.pos)
			n, start = 0, 0
		}
		c.run(p, &l, n, start)
		return budget - l.Left()
	}
	h := l
	if p.run > 0 {
		l.Skip(p.fill - (r.room() - head))
		c.run(p, &l, 0, p.at)
		h.SetLeft(l.Left())
	}
	n := h.Lay(c.sges[c.pieces:], first, c.outKey, tail)
	c.cut(n, start, p.pos, c.tx.Head())
	return budget - h.Left()
}

// run lays the run and appends its requests; n pieces before it go with them, from
// start on.
func (c *Channel) run(p *place, l *gather.List, n, start int) {
	rest := p.run - p.whole
	if p.whole > 0 {
		pad := 0
		if rest == 0 {
			pad = p.pad
		}
		n += l.Lay(c.sges[c.pieces+n:], c.out[p.at:p.at+p.whole], c.outKey, pad)
	}
	c.cut(n, start, p.pos, p.pos)
	if rest > 0 {
		c.cut(l.Lay(c.sges[c.pieces:], c.out[:rest], c.outKey, p.pad), 0, p.pos, p.pos)
	}
}

// cut appends writes of the next n pieces to off of the ring and behind, as many
// as the link's longest list demands, each signalled if it is time. last is the
// position that the completion of the last one stands for, pos that of the others:
// a message is not done before all its requests are.
func (c *Channel) cut(n, off int, pos, last uint64) {
	for n > 0 {
		m := min(n, c.caps.MaxSGE)
		if m == n {
			pos = last
		}
		size := 0
		for i := range m {
			size += int(c.sges[c.pieces+i].Len)
		}
		c.appendList(m, size, ringStart+off, c.id(pos))
		c.sign(c.staged-1, pos)
		off += size
		n -= m
	}
}

// signBorrowed makes the last request that waits signalled, so that memory taken
// in place comes back soon. In mode cursor the write cursor may be still to come:
// then next time.
func (c *Channel) signBorrowed() {
	w := &c.wrs[c.staged-1]
	if head := c.tx.Head(); (w.ID^c.id(head))&^idCredit == 0 {
		w.Flags |= fabric.FlagSignaled
		c.quiet, c.signaled, c.borrowed = 0, head, false
	}
}

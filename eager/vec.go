package eager

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/gather"
)

// StageVec stages one message whose payload is pieces, in order. The next Flush posts it,
// in one Post with the others. The link reads pieces in place from their memory; the others
// are copied to the mirror, where neighbours share one SGE. If the result is Accepted,
// memory of pieces in place belongs to the link until Done(pos): the last request of the
// flush is signalled for it. If the channel fails, the memory remains the link's until the
// endpoint is closed and drained. Pieces in place beyond MaxInPlace are copied. StageVec
// does not block or allocate, and flushes if there is no room. Errors are those of Send.
//
// Hot path.
func (s *sender) StageVec(e Envelope, pieces []gather.Piece) (pos uint64, res Result, err error) {
	pos, res, err = s.stageVec(&e, pieces)
	if res == Accepted || err != nil || s.first == s.staged {
		return pos, res, err
	}
	if err := s.flush(false); err != nil {
		return 0, res, err
	}
	return s.stageVec(&e, pieces)
}

// MaxInPlace returns the number of pieces of one message that may be sent in place.
func (s *sender) MaxInPlace() int { return s.inPlace }

// GatherLimits returns the limits of a gather that is sent on this channel with e.
func (s *sender) GatherLimits(e Envelope) gather.Limits {
	return gather.Limits{Bytes: s.MaxPayload(e.Class, e.HasMeta), InPlace: s.inPlace}
}

// A message of m SGEs in place needs at most vecSGEs(m) SGEs and vecWRs(m) requests: one
// copied piece before each, and one at the end of each of its three windows, whose lists
// are split separately.
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

// allot sets the lengths of the lists of requests and pieces, while nothing is staged.
func (s *sender) allot(batch, pieces int) {
	s.batch, s.listed, s.inPlace = uint32(batch), uint32(pieces), inPlaceLimit(batch, pieces, s.maxSGE)
	if s.wrs != nil {
		s.wrs, s.sges = make([]fabric.WR, batch), make([]fabric.SGE, pieces)
	}
}

// stageVec lays out a message in mirror and memory in place, and appends its requests.
//
// Hot path.
func (s *sender) stageVec(e *Envelope, pieces []gather.Piece) (uint64, Result, error) {
	if !s.open {
		return 0, NoCredit, s.ready()
	}
	n, m := 0, 2 // two more if windows cut a piece
	for i := range pieces {
		n += len(pieces[i].Data)
		if pieces[i].InPlace {
			m++
		}
	}
	if n > s.txRing.limit(e.Class, e.HasMeta) {
		return 0, NoCredit, fmt.Errorf("send of %d bytes, limit %d: %w", n, s.txRing.limit(e.Class, e.HasMeta), ErrTooLarge)
	}
	asked := m > 2
	m = min(m, s.inPlace)
	if !s.makeRoom(vecWRs(m, s.maxSGE)+flushWRs, vecSGEs(m)+flushWRs) {
		s.stats.QueueFull++
		return 0, QueueFull, s.err
	}
	k, fill := s.txRing.split(uint64(n), e.HasMeta)
	pos, ok, err := s.reserve(k, e.Class)
	if !ok {
		return 0, NoCredit, err
	}
	p := s.place(pos, k, fill, n, e.HasMeta)
	block, head := s.seal(e, &p, n)
	s.stats.InPlace += uint64(s.lay(&p, block, head, gather.NewList(pieces, m)))
	s.borrowed = s.borrowed || asked
	s.stats.Sent++
	return s.tx.Head(), Accepted, nil
}

// lay appends the requests of a message in the order of request. It returns the number of
// pieces in place.
func (s *sender) lay(p *place, block []byte, head int, l gather.List) int {
	r := &s.txRing
	budget := l.Left()
	first := block[r.room()-p.fill:]
	tail := len(block) - head // meta and trailer
	if p.k == 1 {
		clear(block[head-p.pad : head])
		tail += p.pad
	} else if rest := p.run - p.whole; rest > 0 {
		clear(s.out[rest-p.pad : rest])
	} else {
		clear(s.out[p.at+p.whole-p.pad : p.at+p.whole])
	}
	start := r.offset(p.pos) + r.room() - p.fill
	if s.cursorOut {
		n := l.Lay(s.sges[s.pieces:], first, s.outKey, tail)
		if p.at == 0 { // nothing follows, or only at the start of the ring
			s.cut(n, start, p.pos, p.pos)
			n, start = 0, 0
		}
		s.run(p, &l, n, start)
		return budget - l.Left()
	}
	h := l
	if p.run > 0 {
		l.Skip(p.fill - (r.room() - head))
		s.run(p, &l, 0, p.at)
		h.SetLeft(l.Left())
	}
	n := h.Lay(s.sges[s.pieces:], first, s.outKey, tail)
	s.cut(n, start, p.pos, s.tx.Head())
	return budget - h.Left()
}

// run lays out the run and appends its requests, which include the n pieces before it, from
// offset start.
func (s *sender) run(p *place, l *gather.List, n, start int) {
	rest := p.run - p.whole
	if p.whole > 0 {
		pad := 0
		if rest == 0 {
			pad = p.pad
		}
		n += l.Lay(s.sges[s.pieces+n:], s.out[p.at:p.at+p.whole], s.outKey, pad)
	}
	s.cut(n, start, p.pos, p.pos)
	if rest > 0 {
		s.cut(l.Lay(s.sges[s.pieces:], s.out[:rest], s.outKey, p.pad), 0, p.pos, p.pos)
	}
}

// cut appends writes of the next n pieces to offset off of the ring, as many as the link's
// longest list requires, each signalled if it is time. The completion of the last one
// stands for position last, those of the others for pos: a message is not done before all
// its requests are.
func (s *sender) cut(n, off int, pos, last uint64) {
	for n > 0 {
		m := min(n, s.maxSGE)
		if m == n {
			pos = last
		}
		size := 0
		for i := range m {
			size += int(s.sges[s.pieces+i].Len)
		}
		s.appendList(m, size, ringStart+off, s.id(pos))
		s.sign(s.staged-1, pos)
		off += size
		n -= m
	}
}

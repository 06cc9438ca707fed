package rdv

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/scatter"
)

// announced reports whether all of the message is announced.
func (p *pipe) announced() bool { return p.off == len(p.src) }

// beginPipe makes the transfer in slot one of src in chunks.
func (s *source) beginPipe(slot int, src []byte, by Means) {
	most, rate := s.opt.Chunk, s.opt.CopyRate
	if by == Copy {
		most = min(most, len(s.stage.mem)/2)
	} else {
		rate = s.opt.RegisterRate
	}
	for len(s.pipes) <= slot {
		s.pipes = append(s.pipes, pipe{chunks: make([]chunk, s.chunks())})
	}
	p := &s.pipes[slot]
	*p = pipe{
		src: src, by: by, chunks: p.chunks, queued: p.queued,
		grow: newGrowth(s.opt.FirstChunk, most, rate, s.opt.LinkRate),
	}
}

// openPipes allocates the resources that unregistered messages need.
func (s *source) openPipes(by Means) error {
	if s.opt.Staging < 0 && by == Copy {
		return fmt.Errorf("%w: no staging memory", ErrOptions)
	}
	if by == Copy && s.stage.reg == nil {
		return s.stage.open(s.link, s.ep, s.opt.Staging, s.least*s.chunks())
	}
	return nil
}

// chunks returns how many chunks of a message may be outstanding.
func (s *source) chunks() int { return min(s.opt.Chunks, int(s.peer.Chunks)) }

// onReady starts the chunks of an offer.
func (s *source) onReady(id ID) error {
	p := s.findPipe(id)
	if p == nil || p.ready {
		return &ProtocolError{KindReady, id, ErrUnknownID, uint64(id), uint64(len(s.out))}
	}
	p.ready = true
	if !p.queued {
		p.queued = true
		s.streams.Push(uint16(id.slot()))
	}
	return nil
}

// onAck releases the memory of chunks that the peer has fetched.
func (s *source) onAck(id ID, fetched uint32) error {
	p := s.findPipe(id)
	switch {
	case p == nil:
		return &ProtocolError{KindAck, id, ErrUnknownID, uint64(id), uint64(len(s.out))}
	case fetched <= p.acked || fetched > p.sent:
		return &ProtocolError{KindAck, id, ErrSize, uint64(fetched), uint64(p.sent)}
	}
	return s.release(p, fetched)
}

// release releases the memory of chunks before number upto.
func (s *source) release(p *pipe, upto uint32) error {
	var err error
	for ; p.acked < upto; p.acked++ {
		err = errors.Join(err, s.drop(&p.chunks[int(p.acked)%len(p.chunks)], p.by))
	}
	return err
}

func (s *source) drop(k *chunk, by Means) error {
	reg := k.reg
	switch {
	case by == Copy && k.len > 0:
		s.stage.give(k.span)
	case reg != nil:
		*k = chunk{}
		return reg.Close()
	}
	*k = chunk{}
	return nil
}

// endPipe ends the chunked part of a transfer that has ended.
func (s *source) endPipe(p *pipe) {
	// After a failure, staged chunks that a living peer may still read stay where they are:
	// nothing is staged any longer.
	if s.live || p.by == Register {
		if err := errors.Join(s.release(p, p.sent), s.drop(&p.pending, p.by)); err != nil {
			s.fail(err)
		}
	}
	*p = pipe{chunks: p.chunks, queued: p.queued}
}

// stream prepares and announces chunks. It prepares at most one, so that other transfers
// get their turn.
//
// Hot path.
func (s *source) stream() bool {
	did := false
	for range s.streams.Len() {
		if !s.live || s.answers.Len() > 0 {
			break
		}
		slot := s.streams.Pop()
		p := &s.pipes[slot]
		if !p.ready || p.announced() { // ended meanwhile
			p.queued = false
			continue
		}
		s.streams.Push(slot)
		prepared := false
		if p.pending.len == 0 {
			if prepared = s.prepare(p); !prepared {
				continue
			}
		}
		if did = s.announceChunk(p, makeID(int(slot), s.out[slot].gen)) || did; prepared {
			return true
		}
	}
	return did
}

// prepare makes the next chunk of p accessible. It returns false if there is no room now.
func (s *source) prepare(p *pipe) bool {
	if int(p.sent-p.acked) == len(p.chunks) {
		return false
	}
	before := p.grow
	n := p.grow.take(len(p.src) - p.off)
	part := p.src[p.off : p.off+n]
	if p.by == Register {
		reg, err := s.link.Register(part, fabric.AccessRemoteRead)
		if err != nil {
			s.fail(fmt.Errorf("register chunk of %d bytes: %w", n, err))
			return false
		}
		p.pending = chunk{reg: reg, addr: reg.Addr(), len: uint32(n), key: reg.Key().RKey}
		return true
	}
	span, mem, ok := s.stage.take(n)
	if !ok {
		p.grow = before
		return false
	}
	copy(mem, part)
	p.pending = chunk{addr: fabric.Addr(mem), len: uint32(n), key: s.stage.reg.Key().RKey, span: span}
	return true
}

// announceChunk announces the prepared chunk to the peer. It returns false if the ring has
// no room.
func (s *source) announceChunk(p *pipe, id ID) bool {
	k := &p.pending
	s.payload = appendChunk(s.payload[:0], scatter.Region{Addr: k.addr, Len: k.len, RKey: k.key})
	if !s.send(KindChunk, id, 0, s.payload) {
		return false
	}
	p.chunks[int(p.sent)%len(p.chunks)] = *k
	p.sent++
	p.off += int(k.len)
	s.stats.Chunks++
	*k = chunk{}
	return true
}

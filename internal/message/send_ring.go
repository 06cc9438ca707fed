package message

import (
	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/gather"
	"github.com/seed33544411/rma/logp"
)

// The ring stream: single messages, and gathers of a plan.

// put stages a message, eager: copied, or in place if that is cheaper. If the ring took it,
// the message no longer belongs to the sender.
//
// Hot path.
func (s *sender) put(o *Out) bool {
	e := eager.Envelope{Kind: kindPlain, HasMeta: true, Meta: meta(o.Tag, o.seq)}
	var pos uint64
	var res eager.Result
	var err error
	inPlace := o.Registered && len(o.Data) >= s.model.inPlace
	if inPlace {
		s.piece[0] = gather.Piece{Data: o.Data, LKey: o.LKey, InPlace: true}
		pos, res, err = s.ring.StageVec(e, s.piece[:])
	} else {
		res, err = s.ring.Stage(e, o.Data)
	}
	if !s.taken(res, err) {
		return false
	}
	s.count(logp.Eager, 1)
	if inPlace {
		o.pos = pos
		s.inflight.Push(o)
	} else {
		s.sent(o, nil)
	}
	return true
}

// fill stages the messages of the batch that use the ring, in order, up to number stop, and
// flushes. It reports whether all were staged.
func (s *sender) fill(stop uint64) (all bool) {
	b := &s.batch
	n := 0 // this many of the first may be sent
	for n < len(b.first) && b.first[n].seq < stop {
		n++
	}
	all = true
	from := -1 // index of the first message of a gather
	for i := 0; i <= n && all; i++ {
		if i < n && b.modes[i] == logp.Gather {
			if from >= 0 && b.part[i] != b.part[from] {
				if all = s.stageGather(from, i); !all {
					break
				}
				from = -1
			}
			if from < 0 {
				from = i
			}
			continue
		}
		if i < n && (b.modes[i] == logp.Scatter || b.modes[i] == direct) {
			continue
		}
		if from >= 0 {
			all = s.stageGather(from, i)
			from = -1
		}
		if all && i < n {
			if all = s.put(b.first[i]); all {
				b.gone[i] = true
			}
		}
	}
	if s.err == nil {
		if s.learn.sign {
			s.learn.pos, s.learn.signed = s.ring.Sign()
		}
		if _, err := s.ring.Flush(); err != nil {
			s.fail(err)
			return false
		}
	}
	return all && s.err == nil
}

// stageGather stages the messages first[from:to] of the batch that are to be gathered: as a
// coalesced run if possible, else packed, in as many ring messages as necessary.
func (s *sender) stageGather(from, to int) bool {
	if s.run == nil {
		s.run = newRun(&s.opt)
	}
	r, ok := s.batch.run(s.run, from, to, s.model.inPlace)
	if !ok || !r.fits(s.room) {
		ok = s.pack(&r, from)
	} else if ok = s.stageRun(&r); ok {
		for i := from; i < to; i++ {
			if s.batch.modes[i] == logp.Gather {
				s.batch.gone[i] = true
				s.sent(s.batch.first[i], nil)
			}
		}
	}
	clear(r.outs)
	return ok
}

// pack stages the messages of r, whose first one has index i in the batch.
func (s *sender) pack(r *coalesced, i int) bool {
	s.packs = append(s.packs[:0], gather.Message{}) // for the tags
	for _, o := range r.outs {
		s.packs = append(s.packs, gather.Message{Data: o.Data, At: o.seq, LKey: o.LKey, Registered: o.Registered})
	}
	for left := r.outs; len(left) > 0; {
		e, msgs, extra := eager.Envelope{Kind: kindGather}, s.packs[len(s.packs)-len(left):], 0
		if r.tagged() {
			e.Kind, extra = kindTagged, 1
			s.tags = appendTags(s.tags[:0], left, sameTags(left))
			msgs = s.packs[len(s.packs)-len(left)-1:]
			msgs[0] = gather.Message{Data: s.tags, At: left[0].seq - 1}
		}
		n, err := s.packer.Pack(msgs)
		if n -= extra; err != nil || n < 1 {
			if err == nil {
				err = gather.ErrTooLarge
			}
			// It was planned as a gather, so it fits, unless the limits of the plan differ
			// from those of the ring.
			s.fail(err)
			return false
		}
		pos, res, err := s.ring.StageVec(e, s.packer.Pieces())
		if !s.taken(res, err) {
			return false
		}
		s.stats.Gathers++
		s.count(logp.Gather, n)
		pieces := s.packer.Pieces()[1+extra:]
		for k, o := range left[:n] {
			for s.batch.modes[i] != logp.Gather {
				i++
			}
			s.batch.gone[i] = true
			i++
			if pieces[k].InPlace {
				o.pos = pos
				s.inflight.Push(o)
			} else {
				s.sent(o, nil)
			}
		}
		left = left[n:]
	}
	return true
}

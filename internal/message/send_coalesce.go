package message

import (
	"encoding/binary"
	"math"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/gather"
	"github.com/seed33544411/rma/logp"
)

// A coalesced run consists of messages with consecutive numbers that are copied into one
// ring message. Streams of small messages are sent in runs without a plan: from a certain
// number of messages on, up to a certain size, the model gathers all of them, whatever
// their sizes and number. model.boundRuns computes these bounds once. The messages are
// written directly into the ring's mirror, without the lists that a plan needs.

// coalesced describes messages that are to be gathered, with sums over them.
type coalesced struct {
	outs   []*Out
	bytes  int
	sizes  int    // all of them combined by OR
	tag    uint32 // of the first
	differ uint32 // bits in which the tags of others differ
}

// tagged reports whether the gather contains the tags of its messages.
func (r *coalesced) tagged() bool { return r.tag|r.differ != 0 }

// entryRoom is the largest overhead of a message in a gather: two bytes for its size, five
// for its tag, which the model counts as one. gatherRoom is the overhead of the gather
// itself.
const (
	entryRoom  = 2 + binary.MaxVarintLen32
	gatherRoom = 64
)

// sendRun sends the front of the backlog if it is a run of small messages, or a gather as
// planned. ok is false if it is not, and nothing was sent: it has to be planned.
//
// Hot path.
func (s *sender) sendRun() (moved, ok bool) {
	most := s.model.runMax[runClass(s.backlog.n)]
	if most < 0 && !s.gathered || len(s.dests.open) > 0 {
		return false, false
	}
	if s.run == nil {
		s.run = newRun(&s.opt)
	}
	var r coalesced
	var behind *Out
	if most >= 0 {
		r, behind, ok = s.frontRun(most)
	}
	if !ok && s.gathered {
		r, behind, ok = s.gatheredRun()
	}
	if !ok {
		return false, false
	}
	if !s.stageRun(&r) {
		return false, true
	}
	if _, err := s.ring.Flush(); err != nil {
		s.fail(err)
		return true, true
	}
	s.backlog.drop(len(r.outs), behind)
	last := r.outs
	if r.differ == 0 {
		last = last[len(last)-1:] // of one tag, only the last message counts
	}
	for _, o := range last {
		s.dests.pass(o.Tag, o.seq)
	}
	s.learn.left -= learnPlanned - 1
	s.stats.Sent += uint64(len(r.outs))
	for i, o := range r.outs {
		r.outs[i] = nil
		if o.pin.held || o.rails != nil { // it was to be announced before
			s.unregister(o)
		}
		if o.Done != nil {
			o.Done.Complete(o.Tag, len(o.Data), nil)
		}
	}
	return true, true
}

// frontRun returns the first messages of the backlog, as many as fit one gather, and the
// message behind them. ok is false if one of them is not small.
func (s *sender) frontRun(most int) (r coalesced, behind *Out, ok bool) {
	o, l := s.backlog.head, &s.model.limits
	room, segment := l.GatherMax-int64(l.Header), int64(l.Segment)
	run := s.run
	next, first, differ, sizes, left, k := o.seq, o.Tag, uint32(0), 0, room, 0
	for ; o != nil && k < len(run); o = o.next {
		n := len(o.Data)
		if n > most || o.Urgent || o.Sync || o.wanted {
			return r, nil, false
		}
		if left -= int64(n) + segment; o.seq != next || left < 0 {
			left += int64(n) + segment
			break
		}
		run[k] = o
		k++
		next++
		sizes |= n
		differ |= o.Tag ^ first
	}
	r = coalesced{outs: run[:k], bytes: int(room - left - int64(k)*segment), sizes: sizes, tag: first, differ: differ}
	return r, o, k > 0 && (differ == 0 || r.bytes+k*entryRoom+gatherRoom <= s.room)
}

// gatheredRun returns the whole backlog if its plan is one gather of messages that are
// copied, as that of the last planned backlog was. Programs repeat themselves: such a backlog
// goes without the lists of a batch, once more planned only if this guess is wrong.
func (s *sender) gatheredRun() (r coalesced, behind *Out, ok bool) {
	s.gathered = false
	if s.backlog.n > s.opt.Batch {
		return r, nil, false
	}
	b := &s.batch
	b.reset()
	n := neighbour{alone: s.model.alone}
	for o := s.backlog.head; o != nil; o = o.next {
		if o.Registered && len(o.Data) >= s.model.inPlace {
			return r, nil, false
		}
		b.Messages = n.add(b.Messages, o)
	}
	s.model.waits(&b.Batch)
	if plan, err := s.model.planner.Plan(&b.Batch); err != nil || !oneGather(plan) {
		return r, nil, false // an error is sendBatch's
	}
	r, behind, ok = s.frontRun(math.MaxInt)
	if s.gathered = ok && behind == nil && r.fits(s.room); s.gathered {
		s.stats.Plans++
	}
	return r, behind, s.gathered
}

// oneGather reports whether all of a batch is one gather.
func oneGather(plan *logp.Plan) bool {
	return len(plan.Parts) == 1 && plan.Parts[0].Mode == logp.Gather
}

// fits reports whether one gather of at most room bytes holds r, whatever the sizes of its
// messages.
func (r *coalesced) fits(room int) bool {
	return r.bytes+len(r.outs)*(entryRoom+2)+gatherRoom <= room
}

// newRun allocates the list of messages of a run: a peer that gets one message at a time
// needs none.
func newRun(o *Options) []*Out { return make([]*Out, o.Batch) }

// run returns the messages first[from:to] that are to be gathered, in outs, which has room
// for them. ok reports whether they can be coalesced if one gather has room: all are shorter
// than inPlace or not registered, and thus copied, and their numbers are consecutive.
func (b *batch) run(outs []*Out, from, to, inPlace int) (r coalesced, ok bool) {
	r.outs, ok = outs[:0], true
	for i := from; i < to; i++ {
		if b.modes[i] != logp.Gather {
			continue
		}
		o := b.first[i]
		if len(r.outs) == 0 {
			r.tag = o.Tag
		} else if o.seq != r.outs[0].seq+uint64(len(r.outs)) {
			ok = false
		}
		if o.Registered && len(o.Data) >= inPlace {
			ok = false
		}
		r.outs = append(r.outs, o)
		r.bytes += len(o.Data)
		r.sizes |= len(o.Data)
		r.differ |= o.Tag ^ r.tag
	}
	return r, ok
}

// stageRun stages the messages of r as one gather.
//
// Hot path.
func (s *sender) stageRun(r *coalesced) bool {
	e, base, n, bytes := eager.Envelope{Kind: kindGather}, r.outs[0].seq, len(r.outs), r.bytes
	sizes := r.sizes
	s.tags = s.tags[:0]
	if r.tagged() {
		e.Kind = kindTagged
		s.tags = appendTags(s.tags, r.outs, r.differ == 0)
		base, n, bytes, sizes = base-1, n+1, bytes+len(s.tags), sizes|len(s.tags)
	}
	room, res, err := s.ring.Compose(e, gather.RunLen(n, uint32(sizes))+bytes)
	if !s.taken(res, err) {
		return false
	}
	var put gather.Sizes
	s.head, put = gather.AppendRun(s.head[:0], base, n, uint32(sizes))
	first := n - len(r.outs) // after the tags
	if first > 0 {
		put.Put(0, len(s.tags))
	}
	if ones, ok := put.Ones(first); ok {
		ones = ones[:len(r.outs)]
		for i, o := range r.outs {
			ones[i] = byte(len(o.Data))
		}
	} else {
		for i, o := range r.outs {
			put.Put(first+i, len(o.Data))
		}
	}
	_, at := room.Put(0, s.head)
	part, at := room.Put(at, s.tags)
	for _, o := range r.outs {
		if b := o.Data; len(b) == 8 && len(part)-at >= 8 {
			binary.LittleEndian.PutUint64(part[at:], binary.LittleEndian.Uint64(b))
			at += 8
		} else if len(part)-at >= len(b) {
			at += copy(part[at:], b)
		} else {
			part, at = room.Put(at, b)
		}
	}
	s.stats.Gathers++
	s.count(logp.Gather, len(r.outs))
	return true
}

package message

import (
	"encoding/binary"

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

// sendRun sends the front of the backlog if it is a run of small messages. ok is false if
// it is not, and nothing was sent: it has to be planned.
//
// Hot path.
func (s *sender) sendRun() (moved, ok bool) {
	most := s.model.runMax[runClass(s.backlog.n)]
	if most < 0 || len(s.dests.open) > 0 {
		return false, false
	}
	if s.run == nil {
		s.run = newRun(&s.opt)
	}
	r, behind, ok := s.frontRun(most)
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
	s.stats.SentBytes += uint64(r.bytes)
	for i, o := range r.outs {
		r.outs[i] = nil
		if o.pin.held {
			s.pins.release(&o.pin)
		}
		n := len(o.Data)
		if o.Data = nil; o.Done != nil {
			o.Done.Complete(o.Tag, n, nil)
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

// newRun allocates the list of messages of a run: a peer that gets one message at a time
// needs none.
func newRun(o *Options) []*Out { return make([]*Out, o.Batch) }

// plannedRun returns the messages first[from:to] of the batch that are to be gathered.
// ok reports whether they can be coalesced: all are copied, their numbers are
// consecutive, and one gather has room for them.
func (s *sender) plannedRun(from, to int) (r coalesced, ok bool) {
	if s.run == nil {
		s.run = newRun(&s.opt)
	}
	r.outs, ok = s.run[:0], true
	for i := from; i < to; i++ {
		if s.batch.modes[i] != logp.Gather {
			continue
		}
		o := s.batch.first[i]
		if len(r.outs) == 0 {
			r.tag = o.Tag
		} else if o.seq != r.outs[0].seq+uint64(len(r.outs)) {
			ok = false
		}
		if o.Registered && len(o.Data) >= s.model.inPlace {
			ok = false
		}
		r.outs = append(r.outs, o) // has capacity for a batch
		r.bytes += len(o.Data)
		r.sizes |= len(o.Data)
		r.differ |= o.Tag ^ r.tag
	}
	return r, ok && r.bytes+len(r.outs)*(entryRoom+2)+gatherRoom <= s.room
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

package message

import (
	"slices"
	"time"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/flowctl"
	"github.com/seed33544411/rma/logp"
)

// SendNow sends a message before it returns, if the message may travel alone, nothing is
// queued before it, it is so small that no mode beats the ring, and the ring of the peer is
// mapped here and has room. data then belongs to the caller again. Otherwise it returns
// false and has no effect: call Send.
//
// Hot path.
func (s *sender) SendNow(tag uint32, data []byte) bool {
	s.opt.Owner.Assert()
	// Progress handles messages that are to be timed, and receives that the peer
	// advertised.
	if !s.live || s.backlog.n > 0 || len(data) > s.model.alone || s.learn.left <= 1 || len(s.dests.open) > 0 {
		return false
	}
	if !s.ring.SendShort(kindPlain, meta(tag, s.seq+1), data) {
		if err := s.ring.Err(); err != nil {
			s.fail(err)
		}
		return false
	}
	s.seq++
	s.learn.left--
	s.dests.pass(tag, s.seq)
	s.stats.Messages[logp.Eager]++
	s.stats.Sent++
	return true
}

// transmit sends the part of the backlog that can be sent.
//
// Hot path.
func (s *sender) transmit() (did bool) {
	for s.backlog.n > 0 && s.err == nil {
		if s.blocked() {
			break
		}
		s.ringBusy, s.queueFull, s.announceBusy, s.writeBusy = false, false, false, false
		learn := false
		if s.learn.left--; s.learn.left <= 0 {
			learn = s.learn.timeNext(s.groups.used())
		}
		if !learn && !s.around && s.backlog.n == 1 && len(s.backlog.head.Data) <= s.model.alone && !s.backlog.head.Sync {
			if !s.sendAlone() {
				break
			}
			did = true
			continue
		}
		moved, all, ok := false, false, false
		if !learn && !s.around {
			moved, ok = s.sendRun()
			all = moved // messages that did not fit, or arrived meanwhile, are sent next
		}
		if !ok {
			moved, all = s.sendBatch(learn)
		}
		did = did || moved
		if !all {
			break
		}
	}
	return did
}

// blocked reports whether the last refusal would repeat, so that planning again would be
// useless: the ring has no more room than before, or the peer has as many transfers as it
// may. A full queue of the link does not block, because no event reports when it has room.
func (s *sender) blocked() bool {
	if s.queueFull {
		return false
	}
	full := s.ringFull()
	if full && !s.around || (full || !s.ringBusy) && s.announceBusy && s.rendezvous.Full() {
		return !s.stall.poll() || !s.goAround()
	}
	if s.stall.polls > 0 {
		s.stall = stall{}
	}
	s.around = full
	return !s.ringBusy && s.writeBusy && !s.rendezvous.MayWrite()
}

// ringFull reports whether the ring has no more room than when it refused a message.
func (s *sender) ringFull() bool {
	return (s.ringBusy || s.around) && s.ring.Free(flowctl.Data) == s.freeWas
}

// goAround announces waiting messages, although they would fit the ring or many are
// announced already: the peer may have receives for these and not for those in front. It
// reports whether this changes anything.
func (s *sender) goAround() bool {
	did := s.ringFull() && !s.around
	s.around = s.around || did
	if s.announceBusy && s.rendezvous.Full() {
		did = s.rendezvous.Widen()
	}
	if did {
		s.stall = stall{}
	}
	return did
}

// Rest returns how long a sleep may last while the peer does not take messages, 0 if
// without limit: after a while Progress announces later messages.
func (s *sender) Rest() time.Duration {
	if s.live && s.backlog.n > 0 && (s.ringFull() && !s.around || s.announceBusy && s.rendezvous.Full()) {
		return s.stall.look(time.Now())
	}
	return 0
}

// sendAlone sends the only message of the backlog, eager.
//
// Hot path.
func (s *sender) sendAlone() bool {
	o := s.backlog.pop()
	if s.assign(o); o.wanted { // so small that its mode is certain
		o.wanted = false
		s.decline(o.want, whySpoken)
	}
	if !s.put(o) {
		if s.err != nil {
			s.sent(o, s.err)
		} else {
			s.backlog.push(o)
		}
		return false
	}
	if _, err := s.ring.Flush(); err != nil {
		s.fail(err)
	}
	return true
}

// sendBatch plans the front of the backlog and executes the plan as far as the two streams
// accept it. moved: some messages were sent; all: all were. learn: the backlog is to be
// signalled or timed, see learner.
func (s *sender) sendBatch(learn bool) (moved, all bool) {
	b := &s.batch
	err := s.view()
	if err == nil {
		learn = b.announceSync() == 0 && learn // the plan does not know of them
		if learn {
			s.learn.begin(b, s.stats.Descriptors)
		} else {
			s.learn.left -= learnPlanned - 1
		}
		var stop, stop2 uint64
		var all2 bool
		stop, all = s.write()
		stop2, all2 = s.announce()
		s.flushRendezvous() // before the ring: data moves while messages are staged
		all = s.fill(min(stop, stop2)) && all && all2
		if learn {
			s.learn.posted(all, s.stats.Descriptors)
		}
	} else {
		s.fail(err)
	}
	for i := range b.first {
		if b.gone[i] {
			moved = true
		} else if s.err != nil {
			b.gone[i] = true
			s.sent(b.first[i], s.err)
		}
	}
	s.backlog.restore(b.first, b.gone)
	return moved, all && s.err == nil
}

// view copies the first messages of the backlog to the batch and plans them.
func (s *sender) view() error {
	b := &s.batch
	b.reset()
	n := neighbour{alone: s.model.alone}
	for s.backlog.n > 0 && len(b.first) < s.opt.Batch {
		o := s.backlog.pop()
		s.assign(o)
		b.add(o, &n)
	}
	if len(b.Messages) == 0 {
		return nil
	}
	s.model.waits(&b.Batch)
	plan, err := s.model.planner.Plan(&b.Batch)
	if err != nil {
		return err
	}
	s.stats.Plans++
	s.gathered = oneGather(plan)
	b.follow(plan)
	s.window.announced(b, s.ring)
	if s.around {
		b.announceAll()
	}
	return nil
}

// Explain reports how outs would be sent if they were the backlog, and why, without sending
// them. It allocates. It returns errors of the planner, or of a channel that is not
// connected or has ended.
func (s *sender) Explain(outs []Out) (*logp.Explanation, error) {
	switch {
	case s.err != nil:
		return nil, s.err
	case !s.live:
		return nil, eager.ErrNotConnected
	}
	b := logp.Batch{Limits: s.model.limits}
	n := neighbour{alone: s.model.alone}
	var written []logp.Message
	open := slices.Clone(s.dests.open)
	for i := range outs {
		o := &outs[i]
		fits := false
		for k := 0; k < len(open); k++ { // as in assign
			if x := open[k]; x.takes(o.Tag) {
				open = slices.Delete(open, k, k+1)
				k--
				if fits = uint64(len(o.Data)) <= uint64(x.len); fits {
					break
				}
			}
		}
		if fits && len(o.Data) >= s.model.writeFrom {
			written = append(written, n.describe(o))
			n.end = 0
		} else {
			b.Messages = n.add(b.Messages, o)
		}
	}
	s.model.waits(&b)
	explain := s.model.planner.Explain
	if len(s.dests.open) == 0 && s.model.isRun(&b) {
		explain = s.model.planner.ExplainCoalesced
	}
	x, err := explain(&b)
	if err == nil {
		p := s.model.planner.Params()
		x.AddDirect(&p, written)
	}
	return x, err
}

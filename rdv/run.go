package rdv

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/scatter"
)

// advance starts the next run of t, or ends t.
//
// Hot path.
func (s *sink) advance(t *incoming) {
	for t.state == inActive && !t.matching && t.run == t.runEnd && t.left > 0 && s.live {
		if !t.nextRun(s.lim) {
			return
		}
		if t.chunked {
			s.answers.Push(answer{KindReady, t.id, 0})
			return
		}
		if t.plan.Done() { // empty messages only
			t.upto = t.runEnd
			s.endRun(t, t.runEnd)
			continue
		}
		if !s.offer(t) && !s.readRails(t) {
			s.queueTurn(t)
		}
		return
	}
	if t.state == inActive && !t.matching && t.left == 0 && t.inflight == 0 && s.live {
		t.state = inEnding
		if t.waited && t.status == statusOK {
			t.status = statusWaited
		}
		s.answers.Push(answer{KindFIN, t.id, t.status})
	}
}

// readRails lets the layer above read the transfer t, whose only message has its destination, over
// several connections.
func (s *sink) readRails(t *incoming) bool {
	if t.rails.Has == 0 || s.byRails == nil || t.msgs[0].n != 1 {
		return false
	}
	t.inflight++
	t.waited = true // its time is not that of one connection
	if !s.byRails.ReadRails(makeHandle(t.id, 0), t.d.Regions[0], t.rails) {
		t.inflight--
		return false
	}
	return true
}

// nextRun makes the first sequence of matched messages the current run. Their pieces must
// be adjacent in dest as well.
func (t *incoming) nextRun(lim scatter.Limits) bool {
	i := 0
	for i < len(t.msgs) && t.msgs[i].state != msgMatched {
		i++
	}
	if i == len(t.msgs) {
		return false
	}
	first := t.msgs[i].dst
	next := first
	t.run, t.upto, t.planned = i, i, t.start(i)
	for i < len(t.msgs) && t.msgs[i].state == msgMatched && t.msgs[i].dst == next {
		t.msgs[i].state = msgRunning
		next += t.msgs[i].n
		i++
	}
	t.runEnd = i
	t.plan.Reset(t.dest[first:next], lim)
	if !t.chunked {
		t.plan.Feed(t.d.Regions, t.planned)
	}
	return true
}

// endRun ends the messages of the current run before upto, which are read.
func (s *sink) endRun(t *incoming, upto int) {
	for t.run < upto {
		i := t.run
		// The last message ends the run only after the call of the handler, so that the
		// handler finds the run still in progress.
		s.endMessage(t, i, nil)
		t.run = i + 1
	}
}

// Hold makes Accept and Refuse collect their changes until Release. Messages of one
// descriptor that are accepted in between are then fetched in one run; otherwise the reads
// of the first would delay the others. Between Hold and Release the link is not polled and
// Progress is not called.
//
// Hot path.
func (s *sink) Hold() { s.hold = true }

// Release applies the changes of Accept and Refuse since Hold.
//
// Hot path.
func (s *sink) Release() {
	s.hold = false
	for _, slot := range s.changed {
		t := &s.in[slot]
		t.changed = false
		s.advance(t)
	}
	s.changed = s.changed[:0]
}

// step advances t, now or at Release.
func (s *sink) step(t *incoming) {
	switch {
	case !s.hold:
		s.advance(t)
	case !t.changed:
		t.changed = true
		s.changed = append(s.changed, uint16(t.id.slot()))
	}
}

func (s *sink) queueTurn(t *incoming) {
	if !t.queued {
		t.queued = true
		s.turns.Push(uint16(t.id.slot()))
	}
}

// requestRead builds one read of the transfer in that slot. ok is false if too many reads
// are in flight, more if there is nothing left to request now.
func (s *sink) requestRead(slot uint16) (more, ok bool) {
	t := &s.in[slot]
	w := s.wrs[s.staged : s.staged+1]
	if t.plan.Next(fabric.OpRead, w, s.sges[s.pieces:], s.reads) == 0 {
		return true, false
	}
	s.pieces += len(w[0].Local)
	t.planned += w[0].Len()
	for t.upto < t.runEnd && t.msgs[t.upto].end <= t.planned {
		t.upto++
	}
	done := t.plan.Done()
	w[0].ID = uint64(s.opt.IDTag+1)<<48 | uint64(slot)<<idSlotShift | uint64(t.upto)
	if done && t.chunked {
		w[0].ID |= idEnd
		done = !t.feed()
	}
	w[0].Flags = fabric.FlagSignaled
	s.staged++
	s.reads++
	t.inflight++
	t.queued = !done
	return !done, true
}

// feed passes the next chunk to the plan, if there is one.
func (t *incoming) feed() bool {
	if t.fed == t.announced {
		return false
	}
	i := int(t.fed) % len(t.d.Regions)
	t.plan.Feed(t.d.Regions[i:i+1], 0)
	t.fed++
	return true
}

// onRead handles the completion of a read.
func (s *sink) onRead(id uint64) {
	t := &s.in[id>>idSlotShift&idSlotMask]
	if id&idEnd != 0 {
		t.fetched++
		if id&idUptoMask == 0 && !t.acking { // otherwise the FIN reports it
			t.acking = true
			s.answers.Push(answer{KindAck, t.id, 0})
		}
	}
	s.endRun(t, int(id&idUptoMask))
	s.advance(t)
}

package coll

import (
	"fmt"
	"slices"

	"github.com/seed33544411/rma/internal/cpu"
)

// fastPlan is the schedule by flags of the last calls that were alike.
type fastPlan struct {
	asked      call
	call       call                // with the algorithm
	meet       bool                // with a barrier at the end
	force      *map[kind]algorithm // that held then: see Team.Force
	send, recv []mem
	s          *schedule // nil: none
}

// fastPlans are found without the hash tables of plans: calls that differ may have the same
// place.
type fastPlans [32]fastPlan

// of returns the place for calls like asked.
func (ps *fastPlans) of(asked *call, meet bool) *fastPlan {
	h := uint32(asked.kind)*5 + uint32(asked.op)*3 + asked.root + uint32(asked.count)
	if meet {
		h += uint32(len(ps)) / 2
	}
	return &ps[h%uint32(len(ps))]
}

// find returns the plan for an operation, of which asked is the call without an algorithm; nil if there
// is none.
func (ps *fastPlans) find(o *operation, asked *call, meet bool) *fastPlan {
	p := ps.of(asked, meet)
	if p.s == nil || p.asked != *asked || p.meet != meet || p.force != o.t.force.Load() ||
		!slices.Equal(p.send, o.send) || !slices.Equal(p.recv, o.recv) {
		return nil
	}
	return p
}

// keep keeps the schedule of an operation, of which asked is the call without an algorithm.
func (ps *fastPlans) keep(o *operation, asked call) {
	p := ps.of(&asked, o.meet)
	*p = fastPlan{asked, o.call, o.meet, o.t.force.Load(), append(p.send[:0], o.send...), append(p.recv[:0], o.recv...), o.plan}
}

// fastSpins is how often the fast path looks for flags, looks times each: for some microseconds, in which
// ranks that make the same call at the same time answer, and during some yields, in which
// ranks take turns that share its processor. Others wait for the board meanwhile. It pauses from the
// beginning: on an AMD EPYC reads without a pause delay the store that they wait for, and a yield is
// longer than most waits.
var fastSpins = cpu.SpinPolicy{Pauses: 128, Yields: 8}

// fastProgress is the number of operations after which the fast path polls the links, which end the
// signals that it has sent, and after which calls that do not wait do not take it: the engine then
// ends what callbacks start one in another, whose stack would grow.
const fastProgress = 64

// disown makes the board's own operation one of those of all calls: it goes their way. b.mu is held.
func (b *board) disown(o *operation) {
	if o.own {
		o.own, b.own = false, nil
	}
}

// startFast performs an operation by flags within the call that starts it, which takes half as
// long as by the way of all others: it enters no table, has no request of its own, and nobody
// else sees it. That is possible if it is the only one of the board, is like an earlier one, and
// the other ranks make their calls at about the same time: a call that does not wait for the
// operation spends no more than performSoon does. Otherwise it goes the way of all others: from
// the beginning (startFast returns nil), or from where it is.
func startFast(t *Team, o *operation) *Request {
	c, ch := t.t, t.ch
	var b *board
	if o.own { // unused has found that it may be possible, and has taken the lock
		b = c.board
	} else if b = t.fastBoard(); b != nil {
		b.mu.Lock()
	} else {
		return nil
	}
	if b.dead.Load() || len(b.queue) > 0 || !t.waits && b.last%fastProgress == 0 {
		b.disown(o)
		b.mu.Unlock()
		return nil
	}
	c.mu.Lock()
	asked, done := &o.call, &complete
	if o.prepared != nil {
		asked, done = &o.asked, o.prepared.request
	}
	meet := !asked.kind.meets() && (ch.loose+1 >= maxLoose || b.loose+1 >= maxLooseFlags)
	plan := b.fast.find(o, asked, meet)
	if plan == nil || c.err != nil || c.gone != nil || len(c.early) > 0 || c.full() || !o.take() {
		c.mu.Unlock()
		b.disown(o)
		b.mu.Unlock()
		return nil
	}
	// As a whole: a load of the call behind stores of its fields would wait until they have left the processor.
	o.call = plan.call
	k := ch.number(o)
	ch.recent[k.seq%uint32(len(ch.recent))] = plan.call
	c.mu.Unlock()
	b.number(o)
	o.key, o.plan = k, plan.s
	if n := plan.s.temp; n > 0 {
		o.temp = slices.Grow(o.temp, n)
		o.bufs[tmp] = o.temp[:n]
	}
	if b.performSoon(o) {
		b.endFast(o)
		return done
	}
	b.disown(o)
	flag, pc := o.flag, o.pc
	b.unlock()
	if flag%fastProgress == 0 {
		c.eng.Progress()
	}
	c.mu.Lock()
	o.alg = algAuto
	r, err := c.enterLocked(o, k, true)
	c.mu.Unlock()
	if err != nil { // the team ends
		if inUse := stop(b, o, t.waits); inUse != nil {
			err = fmt.Errorf("%w; %w", err, inUse)
		}
		if o.prepared != nil {
			o.giveBack()
		} else {
			c.reuse(o)
		}
		return refused(err)
	}
	o.flag, o.pc = flag, pc
	if flag = c.launch(o, plan.call.alg, t.waits); flag > 0 && t.waits {
		b.spin(flag)
	}
	return r
}

// endFast ends an operation that is over, and releases b.mu.
func (b *board) endFast(o *operation) {
	c, own, polls := b.t, o.own, o.flag%fastProgress == 0
	if own {
		if o.forget(); cap(o.temp) > maxTemp {
			o.temp = nil
		}
	}
	b.unlock()
	if polls {
		c.eng.Progress()
	}
	switch {
	case own: // another call may have it
	case o.prepared != nil:
		o.giveBack()
	default:
		c.reuse(o)
	}
}

// take makes a persistent operation that is not in flight, or closed, one that is, for startFast:
// other starts fail, or return the request of its earlier use, which is over. The team's mu is
// held.
func (o *operation) take() bool {
	if o.prepared == nil {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended || o.closed {
		return false
	}
	o.ended = false
	return true
}

// giveBack is the inverse of take.
func (o *operation) giveBack() {
	o.mu.Lock()
	o.ended = true
	o.mu.Unlock()
}

// performSoon performs an operation whose flags come soon. It reports whether it is over; if
// a line is wrong, it is not. b.mu is held.
func (b *board) performSoon(o *operation) (over bool) {
	sp := cpu.Spinner{Policy: &fastSpins, Contention: b.t.s.contention, Holds: true}
	for {
		if wrong, ok := b.perform(o); ok || wrong != nil {
			return ok
		}
		for !b.look(b.next) {
			if b.rouse(); b.wakes != 0 {
				return false // ranks are woken when b.mu is released
			}
			if sp.Wait(); sp.Weary() {
				return false
			}
		}
	}
}

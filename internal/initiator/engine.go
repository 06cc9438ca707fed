package initiator

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/progress"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/mr"
)

// Init prepares e. Set-up path.
func (e *Engine) Init(o Options) {
	e.opt = o
	e.backoff.began = time.Now()
}

// AddLink adds the link with the next index. pins registers application memory with it.
// Set-up path.
func (e *Engine) AddLink(l fabric.Link, pins *message.Pins) error {
	s, err := newSlots(l)
	if err != nil {
		return fmt.Errorf("memory for results on %s: %w", l.Name(), err)
	}
	e.links = append(e.links, &link{Link: l, pins: pins, results: s})
	return nil
}

// AddQueue makes q, a zero Queue, the queue of the peer with the next rank, reached by the
// link with that index. own: the peer is this rank. Set-up path.
func (e *Engine) AddQueue(q *Queue, link int, own bool, h Host) {
	l := e.links[link]
	caps := l.Caps()
	q.eng, q.host, q.rank, q.own = e, h, len(e.queues), own
	q.link, q.index = l, link
	q.max, q.pieces = min(caps.MaxMessage, 1<<32-1), max(caps.MaxSGE, 1)
	q.wakes, q.inline, q.immediate = caps.WakesOnWrite, caps.MaxInline >= 8, caps.Immediate || own
	q.control.q, q.requests.q, q.serving.q, q.rails.q = q, q, q, q
	e.queues = append(e.queues, q)
	e.awaits.deaf = e.awaits.deaf || !q.wakes
}

// Start sets the engine that drives the links, and the registered memory. Call it before
// the first operation. Set-up path.
func (e *Engine) Start(prog *progress.Engine, memory *mr.Domain) {
	e.prog, e.memory = prog, memory
	for i, l := range e.links {
		l.groups = onesided.NewServer(memory, i)
	}
}

// Step advances all operations. It reports whether it did anything.
func (e *Engine) Step() bool {
	e.prog.AssertOwned()
	did := len(e.backoff.list) > 0 && e.backoff.resume()
	for i := 0; i < len(e.active); {
		q := e.active[i]
		if q.post() {
			did = true
		}
		if q.posts.head != nil || q.words.redo.head != nil || len(q.control.list) > 0 || len(q.rails.due) > 0 {
			i++
			continue
		}
		q.active = false
		last := len(e.active) - 1
		e.active[i] = e.active[last]
		e.active[last] = nil
		e.active = e.active[:last]
	}
	return len(e.awaits.list) > 0 && e.awaits.step() || did
}

// resume continues loops whose wait is over, and reports whether there were any.
func (b *backoff) resume() bool {
	at := b.now()
	n := len(b.list)
	b.list = slices.DeleteFunc(b.list, func(o *Op) bool {
		switch q := o.q; {
		case q.down != nil:
			o.note(q.down)
			o.end()
		case at < o.more.until:
			return false
		default:
			o.redo()
		}
		return true
	})
	return len(b.list) < n
}

// rest returns the time until the first of the loops continues. There is one.
func (b *backoff) rest() time.Duration {
	first := b.list[0].more.until
	for _, o := range b.list[1:] {
		first = min(first, o.more.until)
	}
	return max(first-b.now(), time.Microsecond)
}

// Rest returns how long a sleep may last with the operations in flight, 0 if without limit.
func (e *Engine) Rest() (d time.Duration) {
	if len(e.awaits.list) > 0 {
		d = e.awaits.rest()
	}
	if b := &e.backoff; len(b.list) > 0 {
		if n := b.rest(); d == 0 || n < d {
			d = n
		}
	}
	return d
}

// Watches reports whether operations wait for words that peers change: then links must wake this rank
// when a peer has written. Otherwise nothing here looks at memory of the application.
func (e *Engine) Watches() bool { return len(e.awaits.list) > 0 }

// Uses reports whether an operation in flight uses local memory in [lo, hi). The inbox is empty.
// Set-up path: it searches all operations, so that closing memory pays and operations do not.
func (e *Engine) Uses(lo, hi uint64) bool {
	e.prog.AssertOwned()
	for _, o := range e.inflight.ops {
		if o != nil && o.uses(lo, hi) {
			return true
		}
	}
	for _, q := range e.queues {
		for o := q.posts.head; o != nil; o = o.next {
			if o.uses(lo, hi) {
				return true
			}
		}
	}
	return false
}

// End ends all present and later waits for words with err.
func (e *Engine) End(err error) {
	e.prog.AssertOwned()
	e.awaits.over = err
	e.awaits.look()
}

// Close releases all memory. No queue may have requests on a link.
func (e *Engine) Close() error {
	var errs []error
	if e.staging != nil {
		errs = append(errs, e.staging.Close())
	}
	for _, q := range e.queues {
		for _, r := range q.regions() {
			errs = append(errs, r.Close())
		}
	}
	for _, l := range e.links {
		errs = append(errs, l.results.region.Close())
	}
	return errors.Join(errs...)
}

// Up sets the connection.
func (q *Queue) Up(ep fabric.Endpoint) {
	q.eng.prog.AssertOwned()
	q.ep = ep
	if q.mapped.longest = carriedRun; q.own {
		q.mapped.longest = math.MaxInt32
	}
	if q.own || q.link.Caps().MapsAlloc {
		q.mapped.Direct, _ = ep.(fabric.Direct)
	}
	q.wake()
}

// Down ends the connection with err; a later call may replace the reason. Operations that
// are not posted fail; posted ones are flushed by the link.
func (q *Queue) Down(err error) {
	q.eng.prog.AssertOwned()
	q.down = err
	for _, l := range []*opList{&q.posts, &q.words.redo} {
		for l.head != nil {
			l.spoil(err)
		}
	}
	q.control.list = q.control.list[:0]
	q.rails.down(err)
	q.requests.end(err)
	if b := &q.eng.backoff; len(b.list) > 0 {
		b.resume()
	}
	if w := &q.eng.awaits; len(w.list) > 0 {
		w.look()
	}
}

// Plan makes puts and gets of several pieces use the cheapest method by p, which must not
// change any more, or the forced one. Owner's.
func (q *Queue) Plan(p *logp.Params, forced bool, way logp.Way) {
	q.eng.prog.AssertOwned()
	g := &q.groups
	g.params, g.forced, g.way = p, forced, way
	q.rails.assume()
}

// Idle reports whether the queue has no requests on the link and no operations listed.
func (q *Queue) Idle() bool {
	q.eng.prog.AssertOwned()
	return q.inflight == 0 && q.flushes.open == 0 && q.posts.head == nil && q.flushes.list.head == nil && !q.active
}

// Renew prepares q, which is idle and down, for the next connection. It returns memory of
// the last connection, which the caller must close.
func (q *Queue) Renew() []fabric.Region {
	q.eng.prog.AssertOwned()
	old := q.regions()
	q.ep, q.mapped, q.down = nil, mapped{}, nil
	q.full, q.fenced, q.loose = false, false, 0
	q.control, q.words, q.requests, q.serving = control{q: q}, words{}, requester{q: q}, server{q: q}
	q.rails = Rails{q: q}
	q.small.Store(0)
	return old
}

// regions returns the memory of the connection.
func (q *Queue) regions() (rs []fabric.Region) {
	all := []fabric.Region{q.requests.mine, q.serving.region}
	for i := range q.rails.rail {
		all = append(all, q.rails.rail[i].mine)
	}
	for _, r := range all {
		if r != nil {
			rs = append(rs, r)
		}
	}
	return rs
}

// Notified handles a notification from the peer.
func (q *Queue) Notified(c *fabric.Completion) {
	q.eng.prog.AssertOwned()
	kind, slot, st := int(c.Imm>>12&15), int(c.Imm>>8&15), onesided.Status(c.Imm)
	switch kind {
	case noteSignal: // the next step checks the words
	case noteRequest, noteGroup:
		q.serving.serve(kind, slot)
	case noteAck:
		q.requests.acknowledged(slot, st)
	case noteOpen:
		q.serving.open()
	}
}

// ProbeOf sets the word that probes read, and its destination.
func (q *Queue) ProbeOf(word fabric.RemoteKey, sge fabric.SGE) {
	q.control.word, q.control.sge[0] = word, sge
}

// Probe reads the peer's word. Host.Probed follows, or the connection ends.
func (q *Queue) Probe() {
	q.eng.prog.AssertOwned()
	q.control.push(notice{imm: noteProbe})
}

// CompleteControl handles a completion on the connection that belongs to no operation: that
// of a notification, a probe or a part on a rail, or an unknown one.
func (q *Queue) CompleteControl(c *fabric.Completion) {
	q.eng.prog.AssertOwned()
	if c.ID>>40 == 0 && c.ID&partID != 0 {
		q.rails.complete(c)
		return
	}
	if c.ID != noteID && c.ID != probeID {
		return
	}
	q.inflight--
	q.full = false
	switch {
	case c.Status != fabric.StatusOK:
		q.host.Reported(c.Err())
	case c.ID == probeID:
		q.host.Probed()
	}
}

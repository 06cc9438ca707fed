package initiator

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/pending"
	"github.com/seed33544411/rma/internal/progress"
	"github.com/seed33544411/rma/mr"
)

// Options configure an Engine. All must be set.
type Options struct {
	Inbox    *pending.Inbox    // for operations of all kinds
	Receipts *pending.Receipts // for operations that complete in the call
	Protocol progress.Protocol // handles what a post has polled

	// Contention is the least time for which an emulated atomic under contention retries
	// before it fails with ErrContention.
	Contention time.Duration
}

// Engine executes the one-sided operations of a rank. Its methods are the owner's.
type Engine struct {
	opt    Options
	prog   *progress.Engine
	memory *mr.Domain

	links    []*link
	queues   []*Queue
	active   []*Queue // queues with something to post
	inflight inflight
	awaits   awaits
	backoff  backoff
	staging  *mr.Arena // for copies of small application memory

	chain   chain
	grouper onesided.Grouper
	cs      [8]fabric.Completion // filled by goroutines that post
}

// link holds the resources of operations on a link.
type link struct {
	fabric.Link
	pins    *message.Pins
	results slots
	groups  *onesided.Server // for peers' groups
}

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
	q.wakes, q.inline, q.immediate = caps.WakesOnWrite, caps.MaxInline >= 8, caps.Immediate
	q.control.q, q.requests.q, q.serving.q = q, q, q
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
		if q.posts.head != nil || q.words.redo.head != nil || len(q.control.list) > 0 {
			i++
			continue
		}
		q.active = false
		last := len(e.active) - 1
		e.active[i] = e.active[last]
		e.active[last] = nil
		e.active = e.active[:last]
	}
	return len(e.awaits.list) > 0 && e.awaits.look() || did
}

// Rest returns how long a sleep may last with the operations in flight, 0 if without limit.
func (e *Engine) Rest() (d time.Duration) {
	if len(e.awaits.list) > 0 {
		d = e.awaits.rest()
	}
	if len(e.backoff.list) > 0 {
		d = time.Millisecond // the shortest possible sleep
	}
	return d
}

// Uses reports whether an operation in flight uses local memory in [lo, hi). Set-up path:
// it searches all operations, so that closing memory pays and operations do not.
func (e *Engine) Uses(lo, hi uint64) bool {
	e.prog.AssertOwned()
	e.opt.Inbox.TakeOver()
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

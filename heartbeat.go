package rma

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bringup"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/wireup"
)

// A process that is stopped or starved keeps its connections, and its links report nothing.
// Therefore each engine has a word in registered memory, its heartbeat, that changes while
// the engine makes progress, whichever goroutine drives it. A peer with operations that
// wait reads the word at intervals, by a one-sided read on the connection. If the link maps
// or accesses memory without the target, the value shows whether the word changes; if the
// target's engine has to answer, the answer shows it as well. A word that stays the same,
// or a read that stays unanswered, for HangTimeout means that the peer hangs.

const (
	// hangChecks is the number of reads of peers' words in a HangTimeout: detection takes at
	// most a sixteenth longer.
	hangChecks = 16

	// hangBeats is the least number of changes of an engine's word in a HangTimeout, if the
	// engine would sleep for longer.
	hangBeats = 8

	// hangTrust is the number of intervals, as stated by the peer, that must pass without a
	// change, however short this side's HangTimeout is.
	hangTrust = 4

	// beatSteps is the number of steps of a busy engine between two changes: a few
	// microseconds of polling, or 64 ms if applications drive the engine only by short
	// calls.
	beatSteps = 64
)

// Layout of the region that a link uses for heartbeats.
const (
	beatOwn    = 0  // the word that peers read
	beatPeers  = 64 // the words of peers as last read, by rank; each on its own cache line
	beatLength = 8
)

// heartbeat is an engine's own heartbeat. Owner's.
type heartbeat struct {
	count   uint64
	every   time.Duration   // the longest time without a change; 0: the word does not change
	regions []fabric.Region // by link; none if it does not change
}

// open allocates the memory of heartbeats on a link.
func (h *heartbeat) open(l fabric.Link, ranks int) error {
	r, err := l.Alloc(beatPeers+ranks*beatLength, fabric.AccessLocalWrite|fabric.AccessRemoteRead)
	if err != nil {
		return fmt.Errorf("memory for heartbeats on %s: %w", l.Name(), err)
	}
	h.regions = append(h.regions, r)
	return nil
}

// close releases the memory.
func (h *heartbeat) close() error {
	var errs []error
	for _, r := range h.regions {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// beat changes the words.
// Hot path.
func (h *heartbeat) beat() {
	h.count++
	for _, r := range h.regions {
		onesided.Store64(r.Bytes()[beatOwn:], h.count)
	}
}

// nap returns how long an engine may sleep that would sleep for d; 0 is for ever.
func (h *heartbeat) nap(d time.Duration) time.Duration {
	h.beat()
	if h.every > 0 && (d == 0 || h.every < d) {
		return h.every
	}
	return d
}

// feel begins to watch the heartbeat of p, whose connection is new.
func (t *proto) feel(p *Peer, b bringup.Heartbeat) {
	p.pulse = pulse{used: used(p)}
	if hang := p.eng.cfg.HangTimeout; hang > 0 && b.Every > 0 && !p.own {
		r := t.heart.regions[p.link]
		at := beatPeers + p.rank*beatLength
		p.pulse.word, p.pulse.limit = b.Word, max(hang, hangTrust*b.Every)
		p.one.ProbeOf(b.Word, fabric.NewSGE(r.Bytes()[at:at+beatLength], r.LKey()))
	}
}

// used counts the operations of this side with p. A peer in use is checked even if all
// operations complete at once.
func used(p *Peer) uint64 {
	c := p.msg.Counts()
	return p.one.Used() + c.Sends + c.Receives + c.Batches
}

// awaited reports whether an operation with p waits, or p was used since the last round.
func (t *proto) awaited(p *Peer) bool {
	u := used(p)
	busy := u != p.pulse.used || p.pulse.await || p.one.Busy() || p.msg.Busy()
	p.pulse.used, p.pulse.await = u, false
	return busy || p.eng.attention.Load() > 0
}

// attend runs until the engine is being closed. It checks peers at intervals.
func (t *proto) attend(e *Engine) {
	hang := e.cfg.HangTimeout
	every := hang / hangChecks
	tick := time.NewTicker(every)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-e.tasks.Life().Done():
			return
		case <-tick.C:
		}
		if e.closed.Load() {
			return
		}
		// A process that was itself stopped has not read the words, and cannot judge that
		// time.
		now := time.Now()
		passed := min(now.Sub(last), 2*every)
		last = now
		var hung []*Peer
		e.prog.Do(func() { hung = t.round(passed) })
		for _, p := range hung {
			e.cfg.Logger.Warn("rma: peer hung", "rank", p.rank, "why", "no progress or answer")
			_ = e.job.Hung(p.rank, fmt.Sprintf("no progress for %v", hang)) // a launcher that is gone needs no report
		}
	}
}

// round checks all peers, and returns those that hang; passed is the time since the last
// round.
func (t *proto) round(passed time.Duration) (hung []*Peer) {
	t.inbox.TakeOver()
	for r := range t.one.Awaited {
		t.peers[r].pulse.await = true
	}
	for _, p := range t.peers {
		switch {
		case p.own || p.down != nil:
		case p.ep == nil:
			if answerLate(p, passed) {
				hung = append(hung, p)
			}
		case p.pulse.word.Len > 0 && t.hangs(p, passed):
			hungUp(p, fmt.Errorf("%w for %v", ErrPeerHung, p.pulse.silent.Round(time.Millisecond)))
			hung = append(hung, p)
		case keeps(p, passed):
			hungUp(p, fmt.Errorf("%w in giving back the memory of a withdrawn receive, or in its part of a message", ErrPeerHung))
			hung = append(hung, p)
		}
	}
	return hung
}

// hungUp closes the connection to p, which hangs.
func hungUp(p *Peer, why error) {
	p.downWith(why)
	p.close()
}

// keeps reports whether p makes progress, but has kept the memory of a withdrawn receive for
// HangTimeout: p may write there until it answers that it has written or will not write. The same
// holds for a message that both ends copy if p does not do its part. While p is silent, no time
// passes here: it may be found to hang.
func keeps(p *Peer, passed time.Duration) bool {
	ch := p.msg.Channel()
	silent := p.pulse.looking && p.pulse.notified
	return ch != nil && !silent && ch.Overdue(passed, max(p.eng.cfg.HangTimeout, p.pulse.limit))
}

// hangs evaluates the last read of the word of p, and starts the next one.
func (t *proto) hangs(p *Peer, passed time.Duration) bool {
	u := &p.pulse
	if !t.awaited(p) {
		u.looking = false
		return false
	}
	if u.looking {
		u.silent += passed
	}
	u.looking = true
	switch {
	case u.silent >= u.limit:
		return true
	case u.silent >= u.limit/2 && !u.notified:
		u.notified = true
		p.eng.watches.tell(PeerEvent{Rank: p.rank, State: PeerSilent, Err: fmt.Errorf("%w for %v", errSilent, u.silent.Round(time.Millisecond))})
	}
	if !u.asked {
		u.asked = true
		p.one.Probe()
	}
	return false
}

// felt handles the completion of a read of the word of p.
func (t *proto) felt(p *Peer) {
	u := &p.pulse
	u.asked = false
	if p.down != nil || u.word.Len == 0 {
		return
	}
	r := t.heart.regions[p.link]
	v := onesided.Load64(r.Bytes()[beatPeers+p.rank*beatLength:])
	if v == u.seen {
		return
	}
	u.seen, u.silent = v, 0
	if u.notified {
		u.notified = false
		p.eng.watches.tell(PeerEvent{Rank: p.rank, State: PeerUp})
	}
}

// answerLate checks a peer that is being connected with and does not answer. It reports
// whether that peer is found to hang.
func answerLate(p *Peer, passed time.Duration) bool {
	if !p.conn.Called() {
		return false
	}
	before, limit := p.pulse.silent, p.eng.cfg.HangTimeout
	if p.pulse.silent += passed; p.pulse.silent < limit {
		return false
	}
	p.conn.HangUp(fmt.Errorf("%w: no answer for %v", ErrPeerHung, p.pulse.silent.Round(time.Millisecond)))
	return before < limit
}

// exchange is the part of *wireup.Exchange that attending uses: the ranks that it waits
// for. None are known if the job's server does not answer in time.
type exchange interface{ Missing() []int }

// attending calls wait, which waits for all ranks, and returns early if one of the ranks
// that x waits for is found to hang, with a *PeerError that names it. To check a late rank,
// this rank connects with it, and with the next one when that rank has entered the call.
func attending(ctx context.Context, e *Engine, op string, x exchange, wait func(context.Context) ([][]byte, error)) ([][]byte, error) {
	if e.cfg.HangTimeout <= 0 {
		return wait(ctx)
	}
	ctx, stop := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	late := time.AfterFunc(e.cfg.HangTimeout/hangChecks, func() {
		defer close(ended)
		news := make(chan struct{}, 1)
		var looks sync.WaitGroup
		defer looks.Wait()
		looks.Go(func() {
			if ev, found := lookAtLate(ctx, e, x, news); found {
				stop(&PeerError{Rank: ev.Rank, Op: op, Err: ev.Err})
			}
		})
		for ev := range e.Watch(ctx) {
			if ev.State == PeerHung {
				select {
				case news <- struct{}{}:
				default:
				}
			}
		}
	})
	all, err := wait(ctx)
	var hung *PeerError
	found := errors.As(context.Cause(ctx), &hung)
	stop(nil)
	if !late.Stop() {
		<-ended
	}
	switch {
	case err == nil || !found:
		return all, err
	case errors.Is(err, wireup.ErrUndecided):
		return nil, errors.Join(err, hung)
	}
	return nil, hung
}

// lookAtLate connects with one rank that x waits for, and with the next one when that rank
// has entered the call, until one of them is found to hang, or ctx ends. It acts on each
// report of a hung rank, and also at intervals, because the late ranks may not have been
// known at the time of the report. It connects with one rank only, because all waiting ranks
// do the same, and late ranks would become later by answering them all.
func lookAtLate(ctx context.Context, e *Engine, x exchange, news <-chan struct{}) (ev PeerEvent, found bool) {
	tick := time.NewTicker(e.cfg.HangTimeout / 4)
	defer tick.Stop()
	for {
		late := x.Missing()
		for _, r := range late {
			if ev := e.watches.state(r); ev.State == PeerHung {
				return ev, true
			}
		}
		if len(late) > 0 {
			e.Peer(lateFor(e.Rank(), late)).conn.Call()
		}
		select {
		case <-news:
		case <-tick.C:
		case <-ctx.Done():
			return ev, false
		}
	}
}

// lateFor returns the one of the late ranks, which are sorted, that the rank checks: the
// next one from it on, so that the choice stays the same while others enter the call. If
// the list ends before the rank, the choice depends on the rank, so that ranks check
// different ones.
func lateFor(rank int, late []int) int {
	i, _ := slices.BinarySearch(late, rank)
	if i == len(late) {
		i = rank % len(late)
	}
	return late[i]
}

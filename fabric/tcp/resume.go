//go:build linux || darwin || freebsd

package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
)

// An endpoint whose connection is lost continues on another one, if both sides are configured so
// (Config.Resume). The side that notices closes its connections and says what it has done, its tally;
// the other side does the same when it notices, or when the new connection reaches it. Nothing that
// was in flight is executed after that, because the sockets are closed before the tallies are
// made. Then each side continues behind what the other one has done:
//
//	requests            from the first that the peer has not executed: their memory and inline
//	                    payload are kept until they complete, and so are their sequence numbers
//	answers             from the first that the peer has not received: they are in replies, with the
//	                    results of atomics, which are not executed again; reads read again
//	answers on lanes    are requested once more (wireAgain), because these arrive in any order
//
// A write of which a part was placed is placed again from its begin: no later request was executed,
// and its last word was not stored. Reads that are answered again return what is there then:
// requests behind them may overtake them unless they have FlagFence, and then they have waited.
//
// The side with the smaller nonce dials, as at first.

// errRecalled says that the peer has made another connection.
var errRecalled = fmt.Errorf("tcp: %w: the other side has lost the connection", fabric.ErrPeerGone)

// Times in which a peer's address must answer, in the first attempt to make a connection again and
// at most.
const minRemake, maxRemake = 50 * time.Millisecond, time.Second

// Outages implements fabric.Resumer.
func (s *session) Outages() (lost uint64, why error) { return s.outages, s.outage }

// suspend closes the connections of e, which have failed, and has others made. It returns false if
// e ends instead. The owner calls it.
func suspend(e *endpoint, why error) bool {
	if !e.resumes || e.state.Load() != epUp {
		return false
	}
	e.forget()
	e.adopted = false
	limit := remakeTimes * e.peerTimeout
	if !e.dials() {
		limit += e.peerTimeout // in which the peer, which dials, may notice the loss
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	e.mu.Lock()
	if e.err != nil { // from watchSilence
		why, e.err = e.err, nil
	}
	e.sock.close()
	e.sock.blocked = true
	e.lanes.close()
	e.lanes = lanes{mem: &e.l.memory, own: &e.req.pieces}
	e.cancel = cancel
	e.mu.Unlock()
	e.outage = why
	e.outages++
	e.out.restart()
	e.in.restart()
	e.resp.laned, e.turn = lanedWrite{}, false
	e.comps.path()
	e.l.wg.Add(1)
	go remake(ctx, cancel, e, tallyOf(e))
	return true
}

// remake makes the connections of e again and passes them, or the reason why there are none, to the
// owner.
func remake(ctx context.Context, cancel context.CancelFunc, e *endpoint, mine tally) {
	defer e.l.wg.Done()
	defer cancel()
	var j joint
	if e.dials() {
		j = e.redial(ctx, &e.peer, mine)
	} else {
		j = e.awaitOrEnd(ctx, &e.peer, answer{attempt: firstAttempt, tally: mine})
	}
	j.socks, j.path, j.err = e.takeSockets(j.conns, j.err)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cancel = nil; e.state.Load() != epUp {
		closeAll(j.socks)
		return
	}
	e.remade = &j
	recall(e.l, e)
}

// Pauses before the first inquiry, in which a peer that has noticed the loss dials, and between two.
const minInquire, maxInquire = 3 * time.Millisecond, 200 * time.Millisecond

// awaitOrEnd is await in place of a lost connection: it ends early if the peer's endpoint has ended.
func (co *connector) awaitOrEnd(ctx context.Context, a *address, says answer) joint {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	co.l.wg.Go(func() {
		if err := co.inquire(ctx, a); err != nil {
			cancel(err)
		}
	})
	j := co.await(ctx, a, says)
	if why := context.Cause(ctx); j.err != nil && why != ctx.Err() { //nolint:errorlint // whether there is another cause
		j.err = why
	}
	return j
}

// inquire asks the peer again and again until ctx ends. It returns an error if the peer's endpoint
// has ended: its answer, or that nothing listens at any of its addresses.
func (co *connector) inquire(ctx context.Context, a *address) error {
	pause, attempt := minInquire, co.remakeTime()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		j := co.dialFirst(ctx, a, hello{attempt: inquiry, tally: tally{executed: co.attempt.Load()}}, attempt)
		closeConns(j.conns) // of a peer that does not know what an inquiry is
		pause, attempt = min(2*pause, maxInquire), min(2*attempt, maxRemake)
		if errors.Is(j.err, errNetworkChanged) {
			pause = minInquire
		}
		if end := (*endedError)(nil); errors.As(j.err, &end) || j.err != nil && allAre(j.err, unix.ECONNREFUSED) {
			return j.err
		}
	}
}

// redial is dial for a connection that was lost. A process that listens at none of its addresses has
// ended.
func (co *connector) redial(ctx context.Context, a *address, mine tally) joint {
	pause, attempt := minRedial, co.remakeTime()
	for {
		j := co.dialFirst(ctx, a, hello{attempt: firstAttempt + 1, tally: mine}, attempt)
		if j.err == nil || allAre(j.err, unix.ECONNREFUSED) {
			return j
		}
		if !anyOf(j.err, errNetworkChanged, io.EOF, io.ErrUnexpectedEOF, os.ErrDeadlineExceeded, context.DeadlineExceeded) && !isSystems(j.err) {
			return j
		}
		pause, attempt = min(2*pause, maxRedial), min(2*attempt, maxRemake)
		if errors.Is(j.err, errNetworkChanged) {
			pause = minRedial
		}
		select {
		case <-ctx.Done():
			return j
		case <-time.After(pause):
		}
	}
}

// remakeTime is the time in which an address of the peer must answer in the first attempt.
func (co *connector) remakeTime() time.Duration {
	return min(max(co.peerTimeout/8, minRemake), maxRemake)
}

// headStart is the time before a host is dialled in which those before it may answer.
const headStart = 2 * time.Millisecond

// dialFirst is dialHosts in the order in which the hosts accept a connection now: one that drops
// packets does not hold up the others. It may be abandoned.
func (co *connector) dialFirst(ctx context.Context, a *address, first hello, attempt time.Duration) (j joint) {
	j.err = co.untilChanged(ctx, func(ctx context.Context) error {
		order := *a
		if len(a.hosts) > 1 {
			order.hosts = co.race(ctx, a, attempt)
		}
		j = co.dialHosts(ctx, &order, first, attempt)
		return j.err
	})
	return j
}

// race returns the hosts of a, that which first accepts a connection before the others.
func (co *connector) race(ctx context.Context, a *address, attempt time.Duration) []netip.Addr {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	won := make(chan int, len(a.hosts))
	for i, host := range a.hosts {
		co.l.wg.Go(func() {
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(i) * headStart):
				if c, err := (&net.Dialer{}).DialContext(ctx, "tcp", netip.AddrPortFrom(host, a.port).String()); err == nil {
					_ = c.Close()
					won <- i
					return
				}
			}
			won <- -1
		})
	}
	for range a.hosts {
		if i := <-won; i >= 0 {
			hosts := slices.Clone(a.hosts)
			copy(hosts[1:i+1], a.hosts[:i])
			hosts[0] = a.hosts[i]
			return hosts
		}
	}
	return a.hosts
}

// allAre reports whether all errors that err joins are want.
func allAre(err, want error) bool {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			if !allAre(e, want) {
				return false
			}
		}
		return true
	}
	return errors.Is(err, want)
}

// isSystems reports whether err is an error of the system.
func isSystems(err error) bool {
	var errno unix.Errno
	return errors.As(err, &errno)
}

// resumeAll suspends endpoints whose peer has lost the connection, and resumes those that have
// others. The owner calls it.
func resumeAll(l *link) {
	l.mu.Lock()
	eps := l.resumed
	l.resumed = nil
	l.mu.Unlock()
	for _, e := range eps {
		e.mu.Lock()
		j := e.remade
		deserted := e.deserted != 0 && e.deserted == max(e.attempt.Load(), firstAttempt)
		e.remade, e.deserted = nil, 0
		e.mu.Unlock()
		switch {
		case e.state.Load() != epUp:
			closeJoint(j)
		case j == nil:
			if e.sock.open() && (deserted || len(e.arrivals) > 0) { // this side has not noticed; else await has taken it
				suspend(e, errRecalled)
			}
		case j.err != nil:
			e.failed(unresumed(e, j.err))
		default:
			resume(e, j)
		}
	}
}

// unresumed returns the failure of an endpoint for which no other connection was made.
func unresumed(e *endpoint, why error) *failure {
	if end := (*endedError)(nil); errors.As(why, &end) {
		return e.req.ended(end)
	}
	return &failure{status: fabric.StatusPeerGone, cause: fmt.Errorf("%w; no other connection: %w", e.outage, why)}
}

// closeJoint closes connections that are not needed.
func closeJoint(j *joint) {
	if j != nil {
		closeAll(j.socks)
	}
}

// resume continues on the connections of j, behind what the peer has done. The owner calls it.
func resume(e *endpoint, j *joint) {
	var f *failure
	if j.reads != e.resp.replies.limit {
		f = malformed(errBadTally)
	} else if f = e.req.resume(&j.theirs); f == nil {
		f = e.resp.resume(j.theirs.answered)
	}
	if f != nil {
		closeJoint(j)
		e.failed(f)
		return
	}
	e.outage = nil
	e.comps.path()
	e.out.acks.now = true // a frame, so that what waits is sent
	e.mu.Lock()
	use(e, j.socks, j.path)
	e.mu.Unlock()
	enter(e.l, e)
	e.failed(e.req.retire())
}

// resume continues behind what the peer has done.
func (q *requester) resume(t *tally) *failure {
	if t.executed-q.acked > q.sent-q.acked || t.accepted-q.rdHead > q.rdTail-q.rdHead {
		return malformed(errBadTally)
	}
	executed := func(seq uint32) bool { return int32(seq-t.executed) < 0 }
	again := q.again
	for i := q.rdHead; i != q.rdTail; i++ {
		seq := q.reads[i%maxReads]
		s := q.slot(seq)
		switch accepted := int32(i-t.accepted) < 0; {
		case accepted != executed(seq) && !s.again: // a request is accepted when it is executed
			return malformed(errBadTally)
		case !accepted && s.again:
			again = append(again, seq)
		}
	}
	for seq := q.head; seq != q.sent; seq++ {
		if s := q.slot(seq); s.laned {
			s.laned, s.left = false, 0
			again = append(again, seq)
		}
	}
	if int32(q.sent-q.reached) > 0 {
		q.reached = q.sent
	}
	q.acked, q.sent, q.rdTail, q.laned, q.again = t.executed, t.executed, t.accepted, 0, again
	q.sinceAck, q.piecesSinceAck, q.ping = 0, 0, q.pinged
	q.nak = header{} // it is sent again
	return nil
}

// resume answers once more from the first answer on that the peer has not received.
func (p *responder) resume(answered uint32) *failure {
	r := &p.replies
	if int32(r.head-answered) < 0 || r.tail+p.skew-answered > r.limit {
		return malformed(errBadTally)
	}
	// What was popped is still there: buf has room for more than limit. Before the first answers
	// there are empty ones, which harm only a peer that says so.
	r.head = answered
	return nil
}

// ended returns the failure of an endpoint whose peer has ended with x.
func (q *requester) ended(x *endedError) *failure {
	if f := q.resume(&x.tally); f != nil {
		return f
	}
	if f := q.retire(); f != nil {
		return f
	}
	refused := x.executed
	if x.end&endLate != 0 {
		refused = x.answered
	}
	if x.end != endClosed && q.head == refused && q.head != q.tail {
		st := x.end.status()
		return &failure{status: st, cause: fmt.Errorf("tcp: %w", st.Err())}
	}
	return &failure{status: fabric.StatusPeerGone, cause: errHungUp}
}

package ibv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/verbs"
)

// The goroutines of the two sides that make the next connection of an endpoint, in rounds, one for each
// connection that was lost. A round consists of attempts, most often one. Both sides begin with the port that
// they use, or the one behind it if nobody answered there; a side that cannot connect over a port, and has
// another one that is active, goes on to the next attempt, and the other side follows when it hears of it. What
// the queue pair of the connection before has executed is the same in all attempts of a round. A side that has
// said that it is ready follows, but does not go on by itself; so both end with the same attempt.

// run is endpoint.Rejoin.
func (r *resumption) run(ctx context.Context, by *fabric.Courier) error {
	e := r.e
	err := r.rejoin(ctx, by)
	for _, qp := range r.old {
		err = errors.Join(err, qp.Close())
	}
	r.old = nil
	if err == nil {
		return nil
	}
	by.Own(func() {
		if e.state.Load() == stSuspended {
			e.setErr(fmt.Errorf("%w: %w; no other connection: %w", fabric.ErrDown, r.why, err))
			st := fabric.StatusPeerGone
			if errors.Is(err, errBadLetter) || errors.Is(err, errBadTally) {
				st = fabric.StatusRemoteInvalid
			}
			e.down(fabric.Completion{Op: fabric.OpDown, Status: st}, 0, false)
		}
	})
	if !errors.Is(err, errEnded) {
		r.told = true
		_ = by.Send(ctx, []byte{})
	}
	return fmt.Errorf("ibv endpoint %d: %w", e.id, err)
}

func (r *resumption) rejoin(ctx context.Context, by *fabric.Courier) error {
	e := r.e
	st := stDown
	by.Own(func() {
		if e.state.Load() == stConnected && e.carry == nil && by.Sent() {
			if e.l.pump(); e.state.Load() == stConnected && e.keeps.Load() {
				suspend(e, errRecalled)
			}
		}
		st = e.state.Load()
	})
	switch st {
	case stConnected:
		if going, err := goBack(ctx, r, by); !going {
			return err
		}
	case stSuspended:
	default:
		return r.refuse(ctx, by)
	}
	ctx, cancel := context.WithTimeout(ctx, resumeTimes*e.opt.PeerTimeout)
	defer cancel()
	err := errAgain
	for errors.Is(err, errAgain) {
		err = r.turn(ctx, by)
	}
	return err
}

// refuse takes the letters to an endpoint that is down. It returns errEnded if the peer's is as well, or knows
// that this one is.
func (r *resumption) refuse(ctx context.Context, by *fabric.Courier) error {
	err := errEnded
	if r.e.keeps.Load() && !r.told {
		err = errOver
	}
	for by.Sent() {
		b, nerr := by.Next(ctx)
		if nerr != nil {
			return nerr
		}
		if len(b) > 0 {
			err = errOver
		}
	}
	return err
}

// turn makes one connection. It returns errAgain if the other side has lost it already, or this one.
func (r *resumption) turn(ctx context.Context, by *fabric.Courier) error {
	if err := r.drain(ctx, by); err != nil {
		return err
	}
	if err := r.own(by, r.stop); err != nil {
		return err
	}
	r.next, r.heard, r.lives, r.adopted, r.refused = r.port, false, false, false, nil
	switch {
	case r.last:
		r.next = lastAttempt
	case r.ports > 1 && errors.Is(r.why, fabric.ErrPeerGone):
		r.next++ // nobody answers over this port
	case errors.Is(r.why, errHome) && r.ports > 1:
		r.next = r.ports
	}
	err := errMoved
	for errors.Is(err, errMoved) {
		err = r.attempt(ctx, by)
	}
	return err
}

// attempt is attempt next at the connection. It returns errMoved, and what comes next in next, if there must be
// another one.
func (r *resumption) attempt(ctx context.Context, by *fabric.Courier) error {
	if r.carries && r.next > maxAttempt {
		r.next = lastAttempt
		return r.carried(ctx, by)
	}
	x, from, names, err := r.choose()
	if err != nil {
		return err
	}
	if r.heard, r.ready = r.heard && r.next == r.theirs.attempt, false; ctx.Err() != nil {
		return fmt.Errorf("%w: no port is connected in time", fabric.ErrPeerGone)
	}
	if err := r.own(by, func() error { return r.renew(x, from) }); err != nil {
		return err
	}
	r.mine.kind, r.mine.attempt = kindStopped, r.next
	if err := r.send(ctx, by, &names); err != nil {
		return err
	}
	if err := r.answered(ctx, by); err != nil {
		return err
	}
	if err := r.hear(ctx, by, &r.heard); err != nil {
		return err
	}
	if err := r.exchange(ctx, by, &names); err != nil {
		return err
	}
	if err := r.connect(ctx, by); err != nil {
		return err
	}
	if err := caughtUp(ctx, r, by); err != nil {
		return err
	}
	if err := r.own(by, r.adopt); err != nil {
		return err
	}
	r.mine.kind = kindReady
	if err := r.send(ctx, by, &names); err != nil {
		return err
	}
	if err := r.hear(ctx, by, &r.ready); err != nil {
		return err
	}
	return r.own(by, r.resume)
}

// send sends the letter mine with as many of the names as it has room for, and leaves the others.
func (r *resumption) send(ctx context.Context, by *fabric.Courier, names *[]name) error {
	n := min(len(*names), letterNames)
	r.mine.names, *names = (*names)[:n], (*names)[n:]
	r.mine.more = len(*names) > 0
	return by.Send(ctx, r.mine.append(nil))
}

// exchange exchanges the names that the first letters of both sides had no room for.
func (r *resumption) exchange(ctx context.Context, by *fabric.Courier, names *[]name) error {
	for r.mine.more || r.theirs.more {
		r.mine.kind, r.named = kindNames, false
		if err := r.send(ctx, by, names); err != nil {
			return err
		}
		if err := r.hear(ctx, by, &r.named); err != nil {
			return err
		}
	}
	return nil
}

// choose moves next to the first attempt, from it on, whose port can be used on this side, and returns the port,
// nil for the link's own, with the GID to send from and the keys of memory there. If there is none, it stays with the
// link's own.
func (r *resumption) choose() (x *spare, from verbs.GIDEntry, names []name, err error) {
	first := r.next
	for ; r.next < first+r.ports; r.next++ {
		if x, from, err = r.usable(r.next); err == nil && x != nil {
			names, err = x.names()
		}
		if err == nil || r.ports == 1 {
			break
		}
		r.refused = err
	}
	if err != nil {
		x, from = nil, r.e.l.gid
		for r.next = first; r.next%r.ports != 0; {
			r.next++
		}
	}
	if r.next > maxAttempt {
		return nil, from, nil, errors.Join(errNoPort, r.refused)
	}
	return x, from, names, nil
}

// usable returns the port of an attempt, nil for the link's own, and the GID to send from, or why it cannot be used.
func (r *resumption) usable(attempt int) (x *spare, from verbs.GIDEntry, err error) {
	l := r.e.l
	at, from := &l.adapter, l.gid
	if i := attempt % r.ports; i > 0 {
		if x, err = l.sparePort(i); err != nil {
			return nil, from, err
		}
		if from, err = x.now(); err != nil {
			return nil, from, err
		}
		at = &x.adapter
	}
	if !at.active() {
		return nil, from, fmt.Errorf("%s port %d is not active", at.ctx.Name(), at.port)
	}
	return x, from, nil
}

// elsewhere returns errMoved if another port can be used on this side, and makes it the next one.
func (r *resumption) elsewhere() error {
	for r.next = r.mine.attempt + 1; r.next < r.mine.attempt+r.ports; r.next++ {
		_, _, err := r.usable(r.next)
		if err == nil {
			return errMoved
		}
		r.refused = err
	}
	return nil
}

// answered waits for the peer's first letter of this round. A peer that has sent one lives, and may need longer to
// open another port.
func (r *resumption) answered(ctx context.Context, by *fabric.Courier) error {
	ctx, cancel := context.WithTimeoutCause(ctx, r.patience(), errNoAnswer)
	defer cancel()
	return r.hear(ctx, by, &r.lives)
}

// patience is the time in which the peer must answer the first letter: PeerTimeout, or a quarter of it if the
// peer was silent for PeerTimeout before.
func (r *resumption) patience() time.Duration {
	d := r.e.opt.PeerTimeout
	if errors.Is(r.why, fabric.ErrPeerGone) {
		d /= 4
	}
	return max(d, minAnswer)
}

// own runs f as the owner, unless the endpoint has ended.
func (r *resumption) own(by *fabric.Courier, f func() error) (err error) {
	by.Own(func() {
		if r.e.l.pump(); r.e.state.Load() != stSuspended {
			err = errOver
			return
		}
		err = f()
	})
	return err
}

// hear takes letters until one has come that sets got.
func (r *resumption) hear(ctx context.Context, by *fabric.Courier, got *bool) error {
	for !*got {
		if err := r.take(ctx, by); err != nil {
			return err
		}
	}
	return nil
}

// take takes the peer's next letter. It returns errMoved if that is about an attempt to come.
func (r *resumption) take(ctx context.Context, by *fabric.Courier) error {
	b, err := r.early, error(nil)
	if r.early = nil; b == nil {
		b, err = by.Next(ctx)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case len(b) == 0:
		return errEnded
	}
	x, err := parseResumeLetter(b)
	if err != nil {
		return err
	}
	if x.kind >= kindTrial { // of one that was given up
		return nil
	}
	if x.round != r.round || r.adopted && x.expected != r.theirs.expected || !r.may(&x) {
		return errBadLetter
	}
	r.lives = true
	switch {
	case x.attempt < r.mine.attempt: // given up since
		return nil
	case x.attempt > r.mine.attempt && x.kind == kindStopped:
		r.theirs, r.heard, r.next = x, true, x.attempt
		return errMoved
	case x.attempt > r.mine.attempt || (x.kind != kindStopped) != r.heard || r.ready:
		return errBadLetter
	case x.kind == kindStopped:
		r.theirs, r.heard = x, true
		return nil
	case x.expected != r.theirs.expected || x.address != r.theirs.address || !bytes.Equal(x.carrier, r.theirs.carrier) || len(r.theirs.names)+len(x.names) > maxNames:
		return errBadLetter
	case x.kind == kindReady:
		r.theirs.answers, r.ready = x.answers, true
		return nil
	case r.mine.kind != kindNames || r.named:
		return errBadLetter
	}
	r.theirs.names, r.theirs.more, r.named = append(r.theirs.names, x.names...), x.more, true
	return nil
}

// may reports whether the peer may send a letter about that attempt.
func (r *resumption) may(x *resumeLetter) bool {
	if x.attempt == lastAttempt {
		return r.carries
	}
	return r.ports > 1 || x.attempt == 0
}

// drain waits until the device has flushed the markers: it has processed no packet after that, so that the
// one that the queue pair expects is known.
func (r *resumption) drain(ctx context.Context, by *fabric.Courier) error {
	for ; ; time.Sleep(pause) {
		left := 0
		if err := r.own(by, func() error {
			if left = r.marks; r.leaving {
				left = int(r.e.tail - r.e.head)
			}
			return nil
		}); err != nil || left == 0 {
			return err
		}
		if left < 0 || ctx.Err() != nil {
			return errUndrained
		}
	}
}

// stop begins a round with what the queue pair, which is stopped and drained, has executed.
func (r *resumption) stop() error {
	if r.leaving {
		r.retired, r.e.carry, r.leaving, r.last = r.e.carry, nil, false, false
		r.round++
		r.mine = resumeLetter{round: r.round, expected: r.retired.sent & psnMask}
		return nil
	}
	psn, err := expected(r.e.qp)
	if err != nil {
		return err
	}
	if r.deaf {
		psn, r.deaf = r.first, false
	}
	r.last = r.ending()
	r.round++
	r.mine = resumeLetter{round: r.round, expected: psn}
	return nil
}

// renew replaces the queue pair by one of port x, the link's own if it is nil, that sends from a GID of it.
func (r *resumption) renew(x *spare, from verbs.GIDEntry) error {
	e := r.e
	l := e.l
	at, moves := &l.adapter, x != e.over
	if x != nil {
		at = &x.adapter
	}
	if moves && x != nil {
		if err := at.enter(e.room); err != nil {
			return err
		}
	}
	qp, err := at.createQP(e.queue, e.recvs)
	if err != nil {
		if moves && x != nil {
			at.leave(e.room)
		}
		return err
	}
	if moves && e.over != nil {
		e.over.leave(e.room)
	}
	e.mu.Lock()
	r.old = append(r.old, e.qp)
	e.qp, e.over, e.from, e.psn = qp, x, from, rand.Uint32()&psnMask
	e.apart = x != nil && !x.atomics
	e.mu.Unlock()
	l.mu.Lock()
	retag(e)
	l.mu.Unlock()
	e.mail.empty()
	e.mail.move(x)
	e.recvsUsed = e.recvs
	if err := e.postRecvs(l.rwrs[:]); err != nil {
		return err
	}
	waiting := l.q.Len() // of the queue pair before; another one's may come
	l.q.Reserve(waiting)
	l.giveBack += waiting
	r.renewed, r.failed, r.deaf = true, false, false
	r.mine.address = [addrSize]byte(e.Address())
	return nil
}

// connect connects the queue pair with the peer's, as soon as there is a route.
func (r *resumption) connect(ctx context.Context, by *fabric.Courier) error {
	e := r.e
	a, err := accept(e, r.theirs.address[:])
	if err != nil {
		return fmt.Errorf("%w: %w", errBadLetter, err)
	}
	mtu := verbs.MTUOf(1 << r.mtuShift)
	if min(a.mtu, e.at().mtu) < mtu {
		return fmt.Errorf("%w: path MTU %v", errBadLetter, a.mtu)
	}
	for begun := time.Now(); ; {
		e.mu.Lock()
		if e.state.Load() != stSuspended {
			e.mu.Unlock()
			return errOver
		}
		attr, err := ready(e, &a, mtu)
		st, qerr := e.qp.State()
		e.mu.Unlock()
		if err != nil && qerr == nil && st != verbs.StateInit { // it has failed already: the next one is needed
			return r.own(by, func() error {
				r.failed, r.deaf, r.first = true, attr == nil, a.psn
				return nil
			})
		}
		if err == nil {
			return nil
		}
		if merr := r.elsewhere(); merr != nil {
			return merr
		}
		if r.carries && time.Since(begun) > e.opt.PeerTimeout/carryPart {
			r.next, r.refused = lastAttempt, errors.Join(r.refused, err)
			return errMoved
		}
		if by.Sent() {
			if err := r.take(ctx, by); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%w: %w", fabric.ErrPeerGone, err), r.refused)
		case <-time.After(readyPause):
		}
	}
}

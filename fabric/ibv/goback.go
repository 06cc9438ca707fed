package ibv

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/seed33544411/rma/fabric"
)

// An endpoint with a carrier returns to the link's own port, when that is active again. Whether the port reaches the peer
// is tried first, while the carrier goes on: both sides make a queue pair for that, and each sends an empty
// request. If that arrives, they post nothing more to the carrier, wait until what it has got is complete, and make the next
// connection as after a loss (rejoin.go), but all was executed then. What the carrier has notified of must
// have arrived before the other side posts to a queue pair; so each side tells how many notifications it has sent.

// back is what an endpoint needs to return from a carrier. The owner's, except what Rejoin alone uses.
type back struct {
	seeks   bool     // the port is to be tried
	leaving bool     // nothing more is posted to the carrier
	retired *carrier // the one before, until the next connection is made

	// Rejoin's.
	trial uint32 // the number of the last one
	early []byte // the peer's first letter about the next connection
}

// leave ends the carrier before.
func (b *back) leave() {
	b.retired.close()
	b.retired = nil
}

// seek has Rejoin called when it is time to try the port.
func seek(r *resumption) {
	if !r.seeks && r.returns() {
		r.seeks = true
		r.e.l.push(fabric.Completion{EP: r.e.id, Op: fabric.OpPath})
	}
}

// TryOwnPorts has endpoints that use another port, or a carrier, try the link's own at once, and not when their time has
// come: for tests. The owner of the link calls it.
func TryOwnPorts(l *Link) {
	for _, e := range l.failing() {
		if e != nil && e.keeps.Load() {
			e.again.away.until = time.Time{}
		}
	}
	look(l)
}

// goBack is Rejoin of an endpoint that has a connection. It reports whether a carrier is left for the next connection.
func goBack(ctx context.Context, r *resumption, by *fabric.Courier) (going bool, err error) {
	e := r.e
	carried, seeks := false, false
	by.Own(func() { carried, seeks, r.seeks = e.carry != nil, r.seeks, false })
	if !carried {
		return false, nil
	}
	t := &trial{r: r, by: by}
	if !seeks { // without a letter about the port, or the next connection, there is nothing to do
		x, err := t.hear(ctx, by.Sent, func(x *resumeLetter) bool { return x.kind == kindTrial && x.expected != r.trial })
		if err != nil || x.round == 0 {
			return false, err
		}
		t.theirs = x
	}
	if r.early == nil {
		ctx, cancel := context.WithTimeout(ctx, e.opt.PeerTimeout)
		defer cancel()
		if t.run(ctx) != nil { // the carrier goes on
			by.Own(r.away.again)
			return false, nil
		}
	}
	by.Own(func() {
		if going = e.state.Load() == stConnected && e.carry != nil; going {
			e.state.Store(stSuspended)
			r.lost++
			r.why, r.leaving = errHome, true
			e.l.push(fabric.Completion{EP: e.id, Op: fabric.OpPath})
		}
	})
	return going, nil
}

// trial tries the link's own port with the peer.
type trial struct {
	r            *resumption
	by           *fabric.Courier
	mine, theirs resumeLetter // theirs: none if this side begins
}

// hear takes letters about the connection that is to come until one has come for which is says so, or one that says that
// the peer has left its carrier already, which it keeps. It returns none when there are no more.
func (t *trial) hear(ctx context.Context, more func() bool, is func(*resumeLetter) bool) (resumeLetter, error) {
	for more() {
		b, err := t.by.Next(ctx)
		if err != nil {
			return resumeLetter{}, err
		}
		x, err := parseResumeLetter(b)
		switch {
		case err != nil || x.round != t.r.round+1:
		case x.kind == kindStopped:
			t.r.early = b
			return x, nil
		case is(&x):
			return x, nil
		}
	}
	return resumeLetter{}, nil
}

func always() bool { return true }

// run returns nil if the port works, or the peer has left its carrier.
func (t *trial) run(ctx context.Context) error {
	r := t.r
	ep, err := r.e.l.newEndpoint(fabric.EndpointOptions{ID: carriedBit, Depth: 1, PeerTimeout: r.e.opt.PeerTimeout, Prove: true, Final: true})
	if err != nil {
		return err
	}
	defer t.by.Own(func() { _ = ep.Close() })
	t.mine = resumeLetter{kind: kindTrial, round: r.round + 1, expected: t.theirs.expected, address: [addrSize]byte(ep.Address())}
	begins := t.theirs.round == 0
	if begins {
		t.mine.expected = rand.Uint32() & psnMask
	}
	if err := t.send(ctx, kindTrial); err != nil {
		return err
	}
	if begins {
		if err := t.agree(ctx); err != nil || r.early != nil {
			return err
		}
	}
	if err := try(ctx, ep, t.theirs.address[:]); err != nil {
		return err
	}
	if err := t.send(ctx, kindWorks); err != nil {
		return err
	}
	_, err = t.hear(ctx, always, func(x *resumeLetter) bool { return x.kind == kindWorks && x.expected == r.trial })
	return err
}

func (t *trial) send(ctx context.Context, kind uint8) error {
	t.mine.kind, t.r.trial = kind, t.mine.expected
	return t.by.Send(ctx, t.mine.append(nil))
}

// agree waits for the peer's letter about the trial that this side has begun. If the peer has begun one as well, the lower
// number counts.
func (t *trial) agree(ctx context.Context) (err error) {
	t.theirs, err = t.hear(ctx, always, func(x *resumeLetter) bool { return x.kind == kindTrial && x.expected <= t.r.trial })
	if err == nil && t.theirs.expected < t.r.trial && t.r.early == nil {
		t.mine.expected = t.theirs.expected
		err = t.send(ctx, kindTrial)
	}
	return err
}

// try connects the queue pair of a trial with the peer's and waits until one has heard of the other.
func try(ctx context.Context, e *endpoint, peer []byte) error {
	a, err := accept(e, peer)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state.Load() != stNew {
		return errOver
	}
	if _, err := ready(e, &a, min(e.l.mtu, a.mtu)); err != nil {
		return err
	}
	return prove(ctx, e)
}

// caughtUp waits until all has arrived that the peer has notified of by the carrier before, if there was one.
func caughtUp(ctx context.Context, r *resumption, by *fabric.Courier) error {
	for {
		left := uint32(0)
		if err := r.own(by, func() error {
			c := r.retired
			if c == nil {
				return nil
			}
			if left = (r.theirs.expected - c.got) & psnMask; left > 0 && c.lost {
				return errUncarried
			}
			return nil
		}); err != nil || left == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(errUncarried, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

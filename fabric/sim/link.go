package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
	"github.com/seed33544411/rma/internal/event"
)

// Link is one side's access to a Network. See fabric.Link for the contract.
type Link struct {
	net  *Network
	wake event.Event

	keys softlink.KeyTable

	// Guarded by net.mu.
	eps     []*Endpoint
	regions []*region
	armed   bool
	timer   *time.Timer // wakes a sleeper when a peer's time-out expires
	closed  bool
	dead    bool // killed
	frozen  bool
	unfit   error  // see Fail
	killAt  uint64 // step, 0 for never
	failIn  uint64 // fail the failIn-th request from now, 0 for none
	failSt  fabric.Status
}

var (
	_ fabric.Link     = (*Link)(nil)
	_ fabric.Fallible = (*Link)(nil)
)

// Name returns "sim".
func (l *Link) Name() string { return "sim" }

// Caps returns Options.Caps.
func (l *Link) Caps() fabric.Caps { return l.net.opt.Caps }

// FD returns the event descriptor.
func (l *Link) FD() int { return l.wake.FD() }

// Poll advances the network by a step and returns completions.
func (l *Link) Poll(cs []fabric.Completion) int {
	n := l.net
	n.mu.Lock()
	n.tick()
	if l.closed || l.dead {
		n.mu.Unlock()
		return 0
	}
	n.drive(l)
	k := 0
	if e := len(l.eps); e > 0 {
		gone := false
		first := 0
		if e > 1 {
			first = n.rng.IntN(e)
		}
		for i := 0; i < e && k < len(cs); i++ {
			ep := l.eps[(first+i)%e]
			k += ep.pop(cs[k:])
			gone = gone || ep.state == closed && ep.ready.Len() == 0
		}
		if gone {
			l.eps = slices.DeleteFunc(l.eps, func(ep *Endpoint) bool { return ep.state == closed && ep.ready.Len() == 0 })
		}
	}
	n.mu.Unlock()
	return k
}

// Arm prepares for sleeping on FD.
func (l *Link) Arm() (bool, error) {
	n := l.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.closed {
		return false, fmt.Errorf("arm: %w", fabric.ErrClosed)
	}
	if l.dead {
		return false, nil
	}
	for _, ep := range l.eps {
		if ep.pending() {
			return false, nil
		}
	}
	var wait time.Duration
	for _, ep := range n.active {
		mine, aimed := ep.link == l, ep.peer.link == l
		switch {
		case !mine && !aimed, ep.head == ep.tail:
		case mine && ep.exec != ep.head: // executed, not yet retired
			return false, nil
		case ep.stuck():
			if !mine {
				break
			}
			if n.opt.StepTime > 0 || !ep.waiting {
				return false, nil // polling advances the time, or the time-out has not started
			}
			left := max(ep.since+ep.timeout-n.now(), time.Microsecond)
			if wait == 0 || left < wait {
				wait = left
			}
		case !n.opt.Caps.TargetProgress || aimed:
			return false, nil
		}
	}
	l.armed = true
	if wait > 0 {
		l.timer = time.AfterFunc(wait, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			l.event()
		})
	}
	return true, nil
}

// Disarm ends the armed state.
func (l *Link) Disarm() {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	l.armed = false
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if !l.closed {
		l.wake.Clear()
	}
}

// event wakes the owner if it sleeps.
func (l *Link) event() {
	if l.armed && !l.closed {
		l.wake.Set()
	}
}

// Close closes endpoints and regions and frees the descriptor.
func (l *Link) Close() error {
	n := l.net
	n.mu.Lock()
	if l.closed {
		n.mu.Unlock()
		return nil
	}
	for _, ep := range l.eps {
		ep.close()
	}
	l.closed = true
	l.armed = false
	if l.timer != nil {
		l.timer.Stop()
	}
	n.links = slices.DeleteFunc(n.links, func(x *Link) bool { return x == l })
	n.active = slices.DeleteFunc(n.active, func(ep *Endpoint) bool { return ep.link == l })
	open := l.regions
	l.regions = nil
	n.mu.Unlock()

	var errs []error
	if len(open) > 0 {
		errs = append(errs, fmt.Errorf("close: %w: %d", fabric.ErrRegionsOpen, len(open)))
	}
	for _, r := range open {
		errs = append(errs, r.Close())
	}
	errs = append(errs, l.wake.Close())
	return errors.Join(errs...)
}

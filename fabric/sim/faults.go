package sim

import (
	"errors"

	"github.com/seed33544411/rma/fabric"
)

// FailAt makes the k-th request that this link posts from now on (counted from 1, over all
// its endpoints) fail with st and leave the memory of both sides untouched.
func (l *Link) FailAt(k uint64, st fabric.Status) {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	l.failIn, l.failSt = k, st
}

// Kill simulates the death of the process behind the link, which its peers detect: their
// endpoints fall with StatusPeerGone. A write that was in progress keeps the pieces that
// were visible. Only Close may be called on the link afterwards.
func (l *Link) Kill() {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	l.kill()
}

// KillAt calls Kill at the given step, which may be in the middle of a write.
func (l *Link) KillAt(step uint64) {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	l.killAt = step
}

func (l *Link) kill() {
	if l.dead || l.closed {
		return
	}
	l.dead, l.killAt = true, 0
	for _, ep := range l.eps {
		if ep.state == closed {
			continue
		}
		ep.flush(ep.tail, fabric.StatusFlushed)
		ep.state, ep.err, ep.downSeen = down, fabric.ErrClosed, true
		delete(l.net.byAddr, ep.addr)
		if ep.claimed != nil {
			ep.claimed.fall(fabric.StatusPeerGone)
		}
	}
	l.net.joined.Broadcast()
}

// Fail makes Usable return why; nil undoes it. With fabric.ErrDeviceGone no memory can be registered either.
// Endpoints that are connected stay so.
func (l *Link) Fail(why error) {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	l.unfit = why
}

// Usable implements fabric.Fallible.
func (l *Link) Usable() error {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	return l.unfit
}

// gone returns Fail's reason if it is that the device is gone. net.mu is held.
func (l *Link) gone() error {
	if errors.Is(l.unfit, fabric.ErrDeviceGone) {
		return l.unfit
	}
	return nil
}

// Freeze stops all traffic from and to the link without notice, like a pulled cable or a
// hung host. Peers with a request outstanding give up after their PeerTimeout; idle ones
// detect nothing.
func (l *Link) Freeze() { l.setFrozen(true) }

// Thaw undoes Freeze.
func (l *Link) Thaw() { l.setFrozen(false) }

func (l *Link) setFrozen(f bool) {
	n := l.net
	n.mu.Lock()
	defer n.mu.Unlock()
	l.frozen = f
	for _, x := range n.links {
		x.event() // requests that wait for a step may go on, or must start their time-out
	}
}

package ibv

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
)

// FD implements fabric.Link: an epoll descriptor over the completion channel
// and the device's asynchronous events.
func (l *Link) FD() int { return l.epfd }

// Arm implements fabric.Link. Completions that came before the request for an
// event may raise none, so the queue is looked at once more afterwards; whatever
// is found, also what only makes room in a queue, means no sleep.
func (l *Link) Arm() (bool, error) {
	if l.closed.Load() {
		return false, fmt.Errorf("arm ibv link: %w", fabric.ErrClosed)
	}
	if l.q.Len() > 0 || l.splitting > 0 && l.stalled() {
		return false, nil
	}
	if !l.armed {
		if err := l.cq.ReqNotify(false); err != nil {
			return false, fmt.Errorf("arm ibv link: %w", err)
		}
		l.armed = true
	}
	return !l.pump() && l.q.Len() == 0, nil
}

// Disarm implements fabric.Link. The request for an event cannot be taken back;
// armed stays until its event has been seen.
func (l *Link) Disarm() {
	if l.closed.Load() {
		return
	}
	fds, n := readyFDs(l.epfd)
	for _, fd := range fds[:n] {
		if fd != l.ch.FD() {
			l.pump()
			l.asyncEvents()
			continue
		}
		if q, err := l.ch.Event(); err != nil || q != nil {
			l.armed = false
		}
	}
}

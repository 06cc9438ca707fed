package verbs

import (
	"fmt"
	"sync"
	"syscall"
)

// CompChannel carries events of completion queues to a descriptor that can be
// slept on.
type CompChannel struct {
	h  uintptr
	fd int

	mu  sync.Mutex
	cqs map[uint64]*CQ
}

// CreateCompChannel creates a completion channel.
func (c *Context) CreateCompChannel() (*CompChannel, error) {
	const op = "create completion channel"
	h, err := c.use(op)
	if err != nil {
		return nil, err
	}
	ch, fd, no := rawCreateChannel(h)
	if no != 0 {
		return nil, fail(op, no, "")
	}
	return &CompChannel{h: ch, fd: fd, cqs: map[uint64]*CQ{}}, nil
}

// FD is readable while [CompChannel.Event] has an event. It belongs to the
// channel and is non-blocking.
func (ch *CompChannel) FD() int { return ch.fd }

// Event takes one event, acknowledges it and returns the queue it is for. It
// never blocks; the queue is nil when there is no event. After an event the
// queue must be asked again with [CQ.ReqNotify].
func (ch *CompChannel) Event() (*CQ, error) {
	const op = "get completion event"
	h, err := ch.use(op)
	if err != nil {
		return nil, err
	}
	id, no := rawCQEvent(h)
	switch no {
	case 0:
	case syscall.EAGAIN, syscall.EINTR:
		return nil, nil
	default:
		return nil, fail(op, no, "")
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	q := ch.cqs[id]
	if q == nil {
		return nil, fmt.Errorf("%s: queue %d is unknown", op, id)
	}
	return q, nil
}

// Close destroys the channel; its queues must be closed before.
func (ch *CompChannel) Close() error {
	if ch.h == 0 {
		return nil
	}
	if no := rawDestroyChannel(ch.h); no != 0 {
		return closeFail("destroy completion channel", no)
	}
	ch.h, ch.fd = 0, -1
	return nil
}

func (ch *CompChannel) use(op string) (uintptr, error) {
	if ch.h == 0 {
		return 0, fmt.Errorf("%s: completion channel: %w", op, ErrClosed)
	}
	return ch.h, nil
}

func (ch *CompChannel) add(q *CQ) {
	ch.mu.Lock()
	ch.cqs[q.id] = q
	ch.mu.Unlock()
}

func (ch *CompChannel) remove(q *CQ) {
	ch.mu.Lock()
	delete(ch.cqs, q.id)
	ch.mu.Unlock()
}

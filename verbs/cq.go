package verbs

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
)

// CQ is a completion queue.
type CQ struct {
	h   uintptr
	id  uint64
	cap atomic.Int64
	ch  *CompChannel
}

// CreateCQ creates a completion queue of at least n entries that reports events to ch,
// which may be nil. An overrun (more outstanding completions than entries) breaks the queue
// permanently: size it for all its queue pairs.
func (c *Context) CreateCQ(n int, ch *CompChannel) (*CQ, error) {
	op := fmt.Sprintf("create completion queue of %d entries", n)
	h, err := c.use(op)
	if err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, fmt.Errorf("%s: %w", op, ErrInvalid)
	}
	var chh uintptr
	if ch != nil {
		if chh, err = ch.use(op); err != nil {
			return nil, err
		}
	}
	q := &CQ{id: c.ids.Add(1), ch: ch}
	if ch != nil {
		ch.add(q) // before the first event can name it
	}
	cq, got, no := rawCreateCQ(h, n, q.id, chh)
	if no != 0 {
		if ch != nil {
			ch.remove(q)
		}
		hint := ""
		if no == syscall.EINVAL {
			hint = "more than DeviceAttr.MaxCQE?"
		}
		return nil, memFail(op, no, 0, hint)
	}
	q.h = cq
	q.cap.Store(int64(got))
	return q, nil
}

// ID returns the queue's identifier in [AsyncEvent.ID].
func (q *CQ) ID() uint64 { return q.id }

// Cap returns the number of entries, at least the number requested.
func (q *CQ) Cap() int { return int(q.cap.Load()) }

// Resize changes the number of entries. Providers lock the queue against Poll during the
// call, so another goroutine may keep polling, and call Cap.
func (q *CQ) Resize(n int) error {
	op := fmt.Sprintf("resize completion queue to %d entries", n)
	if q.h == 0 {
		return fmt.Errorf("%s: %w", op, ErrClosed)
	}
	got, no := rawResizeCQ(q.h, n)
	if no != 0 {
		return memFail(op, no, 0, "")
	}
	q.cap.Store(int64(got))
	return nil
}

// Poll stores up to len(wcs) completions in wcs, by one crossing into C, and returns their
// number. It does not block or allocate.
func (q *CQ) Poll(wcs []WC) (int, error) {
	if len(wcs) == 0 {
		return 0, nil
	}
	if q.h == 0 {
		return 0, ErrClosed
	}
	n := rawPollCQ(q.h, wcs)
	if n < 0 {
		return 0, pollErr(n)
	}
	return n, nil
}

func pollErr(n int) error {
	return &Error{Op: "poll completion queue", Errno: syscall.EIO, Hint: fmt.Sprintf("ibv_poll_cq returned %d: the queue has failed, possibly by overrun", n)}
}

// ReqNotify requests one event on the channel at the next completion, or only at the next
// one that is solicited by its sender or failed. Completions that arrived before may raise
// none: poll once more after the call, then sleep.
func (q *CQ) ReqNotify(solicitedOnly bool) error {
	if q.h == 0 {
		return fmt.Errorf("request notification: %w", ErrClosed)
	}
	return fail("request notification", rawReqNotify(q.h, solicitedOnly), "")
}

// Close destroys the queue. The library waits for events of the queue that were read but
// not acknowledged; there are none, as [CompChannel.Event] acknowledges them.
func (q *CQ) Close() error {
	if q.h == 0 {
		return nil
	}
	if no := rawDestroyCQ(q.h); no != 0 {
		return closeFail("destroy completion queue", no)
	}
	q.h = 0
	if q.ch != nil {
		q.ch.remove(q)
	}
	return nil
}

// CompChannel reports events of completion queues through a descriptor.
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

// FD returns a non-blocking descriptor that is readable while [CompChannel.Event] has an
// event. It belongs to the channel.
func (ch *CompChannel) FD() int { return ch.fd }

// Event takes one event, acknowledges it and returns its queue. It never blocks; the queue
// is nil when there is no event. For a further event of the queue, call [CQ.ReqNotify]
// again.
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

// Close destroys the channel. Its queues must be closed before.
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

package verbs

import (
	"fmt"
	"syscall"
)

// CQ is a completion queue.
type CQ struct {
	h   uintptr
	id  uint64
	cap int
	ch  *CompChannel
}

// CreateCQ creates a completion queue of at least n entries that reports events
// to ch, which may be nil. An overrun, more completions outstanding than
// entries, breaks the queue for good: size it for all its queue pairs.
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
	q.h, q.cap = cq, got
	return q, nil
}

// ID names the queue in [AsyncEvent.ID].
func (q *CQ) ID() uint64 { return q.id }

// Cap is the number of entries, at least what was asked for.
func (q *CQ) Cap() int { return q.cap }

// Resize changes the number of entries. Providers lock the queue against Poll
// meanwhile, so another goroutine may go on polling.
func (q *CQ) Resize(n int) error {
	op := fmt.Sprintf("resize completion queue to %d entries", n)
	if q.h == 0 {
		return fmt.Errorf("%s: %w", op, ErrClosed)
	}
	got, no := rawResizeCQ(q.h, n)
	if no != 0 {
		return memFail(op, no, 0, "")
	}
	q.cap = got
	return nil
}

// Poll takes up to len(wcs) completions in one crossing and returns how many.
// Does not block, does not allocate.
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
	return &Error{Op: "poll completion queue", Errno: syscall.EIO, Hint: fmt.Sprintf("the library said %d: the queue is broken, was it overrun?", n)}
}

// ReqNotify asks for one event on the channel at the next completion, or only
// at the next one that its sender marked solicited or that failed. Completions
// that arrived before may not count: poll once more afterwards, then sleep.
func (q *CQ) ReqNotify(solicitedOnly bool) error {
	if q.h == 0 {
		return fmt.Errorf("request notification: %w", ErrClosed)
	}
	return fail("request notification", rawReqNotify(q.h, solicitedOnly), "")
}

// Close destroys the queue. It waits for events of the queue that were taken
// but not acknowledged; [CompChannel.Event] acknowledges, so there are none.
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

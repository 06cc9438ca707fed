package verbs

import (
	"fmt"
	"syscall"
)

// SRQ is a shared receive queue: several queue pairs consume its receives.
type SRQ struct {
	h      uintptr
	id     uint64
	maxWR  int
	maxSGE int
	rq     chain[recvWR]
}

// SRQAttr describes a shared receive queue. Limit, if not 0, requests one
// EventSRQLimitReached when fewer receives than that are left.
type SRQAttr struct {
	MaxWR, MaxSGE, Limit int
}

// CreateSRQ creates a shared receive queue.
func (p *PD) CreateSRQ(a SRQAttr) (*SRQ, error) {
	op := fmt.Sprintf("create shared receive queue of %d receives of %d pieces", a.MaxWR, a.MaxSGE)
	h, err := p.use(op)
	if err != nil {
		return nil, err
	}
	if a.MaxWR < 1 || a.MaxSGE < 0 || a.Limit < 0 {
		return nil, fmt.Errorf("%s: %w", op, ErrInvalid)
	}
	s := &SRQ{id: p.ctx.ids.Add(1)}
	sh, got, no := rawCreateSRQ(h, s.id, a)
	if no != 0 {
		hint := ""
		if no == syscall.EINVAL {
			hint = "more than DeviceAttr.MaxSRQWR or MaxSRQSGE?"
		}
		return nil, memFail(op, no, 0, hint)
	}
	s.h, s.maxWR, s.maxSGE = sh, got.MaxWR, got.MaxSGE
	if !s.rq.init(got.MaxWR, max(got.MaxSGE, 1), (*recvWR).behind) {
		_ = s.Close()
		return nil, fail(op, syscall.ENOMEM, "")
	}
	return s, nil
}

// ID returns the queue's identifier in [AsyncEvent.ID].
func (s *SRQ) ID() uint64 { return s.id }

// Query returns the queue's size and limit. The limit is 0 after its event.
func (s *SRQ) Query() (SRQAttr, error) {
	const op = "query shared receive queue"
	h, err := s.use(op)
	if err != nil {
		return SRQAttr{}, err
	}
	a, no := rawQuerySRQ(h)
	return a, fail(op, no, "")
}

// SetLimit arms the limit event.
func (s *SRQ) SetLimit(n int) error {
	op := fmt.Sprintf("set limit of shared receive queue to %d", n)
	h, err := s.use(op)
	if err != nil {
		return err
	}
	if n < 0 || n > s.maxWR {
		return fmt.Errorf("%s: %w: the queue holds %d", op, ErrInvalid, s.maxWR)
	}
	return fail(op, rawSetSRQLimit(h, uint32(n)), "")
}

// PostRecv posts wrs to the queue. See [QP.PostSend]; one goroutine at a time.
func (s *SRQ) PostRecv(wrs []RecvWR) (n int, err error) {
	if s.h == 0 {
		return 0, ErrClosed
	}
	return postRecv(&s.rq, s.h, wrs, rawPostSRQRecv)
}

// Close destroys the queue. Its queue pairs must be closed before.
func (s *SRQ) Close() error {
	if s.h != 0 {
		if no := rawDestroySRQ(s.h); no != 0 {
			return closeFail("destroy shared receive queue", no)
		}
		s.h = 0
	}
	s.rq.free()
	return nil
}

func (s *SRQ) use(op string) (uintptr, error) {
	if s.h == 0 {
		return 0, fmt.Errorf("%s: shared receive queue: %w", op, ErrClosed)
	}
	return s.h, nil
}

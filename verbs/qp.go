package verbs

import (
	"cmp"
	"fmt"
	"syscall"
	"unsafe"
)

// QPOptions describes the queue pair to create. Counts of zero mean 1 if the queue exists.
type QPOptions struct {
	Type   QPType // zero means RC
	SendCQ *CQ
	RecvCQ *CQ  // nil means SendCQ
	SRQ    *SRQ // source of receives; nil: the queue pair's own queue

	MaxSendWR  int // outstanding requests to send
	MaxRecvWR  int // receives posted; not used with SRQ
	MaxSendSGE int // pieces of one request
	MaxRecvSGE int
	MaxInline  int // bytes that SendInline may carry

	// SignalAll makes every request complete, whatever its flags.
	SignalAll bool
}

// QPCap holds the capacities of a queue pair, at least the requested ones.
type QPCap struct {
	MaxSendWR, MaxRecvWR, MaxSendSGE, MaxRecvSGE, MaxInline int
}

// QP is a queue pair.
type QP struct {
	h   uintptr
	num uint32
	typ QPType
	cap QPCap
	sq  chain[sendWR]
	rq  chain[recvWR]
}

// CreateQP creates a queue pair in state RESET.
func (p *PD) CreateQP(o QPOptions) (*QP, error) {
	o.Type = cmp.Or(o.Type, RC)
	if o.RecvCQ == nil {
		o.RecvCQ = o.SendCQ
	}
	op := fmt.Sprintf("create %v queue pair (%d+%d requests, %d+%d pieces, %d bytes inline)",
		o.Type, o.MaxSendWR, o.MaxRecvWR, o.MaxSendSGE, o.MaxRecvSGE, o.MaxInline)
	h, err := p.use(op)
	if err != nil {
		return nil, err
	}
	if o.SendCQ == nil || o.SendCQ.h == 0 || o.RecvCQ.h == 0 {
		return nil, fmt.Errorf("%s: %w: needs an open completion queue", op, ErrInvalid)
	}
	var srq uintptr
	if o.SRQ != nil {
		if srq, err = o.SRQ.use(op); err != nil {
			return nil, err
		}
	}
	c := QPCap{max(o.MaxSendWR, 1), max(o.MaxRecvWR, 1), max(o.MaxSendSGE, 1), max(o.MaxRecvSGE, 1), max(o.MaxInline, 0)}
	if o.SRQ != nil {
		c.MaxRecvWR, c.MaxRecvSGE = 0, 0
	}
	qh, num, got, no := rawCreateQP(h, o.SendCQ.h, o.RecvCQ.h, srq, o.Type, o.SignalAll, c)
	if no != 0 {
		hint := ""
		if no == syscall.EINVAL {
			hint = "more than the device can do? see DeviceAttr.MaxQPWR and MaxSGE, and try fewer bytes inline"
		}
		return nil, memFail(op, no, 0, hint)
	}
	q := &QP{h: qh, num: num, typ: o.Type, cap: got}
	if !q.sq.init(got.MaxSendWR, got.MaxSendSGE, (*sendWR).behind) || o.SRQ == nil && !q.rq.init(got.MaxRecvWR, got.MaxRecvSGE, (*recvWR).behind) {
		_ = q.Close()
		return nil, fail(op, syscall.ENOMEM, "")
	}
	return q, nil
}

// Num returns the queue pair number.
func (q *QP) Num() uint32 { return q.num }

// Type returns the transport of the queue pair.
func (q *QP) Type() QPType { return q.typ }

// Cap returns the capacities of the queue pair.
func (q *QP) Cap() QPCap { return q.cap }

// Close destroys the queue pair. Outstanding requests may or may not complete; to make them
// complete, move it to the error state ([QP.ToErr]) and poll first.
func (q *QP) Close() error {
	if q.h != 0 {
		if no := rawDestroyQP(q.h); no != 0 {
			return closeFail(fmt.Sprintf("destroy queue pair %#x", q.num), no)
		}
		q.h = 0
	}
	q.sq.free()
	q.rq.free()
	return nil
}

// valuesAt returns n values in C memory at p as a slice.
func valuesAt[T any](p uintptr, n int) []T {
	return unsafe.Slice((*T)(*(*unsafe.Pointer)(unsafe.Pointer(&p))), n)
}

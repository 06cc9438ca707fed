package ibv

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/verbs"
)

// asyncEvery is the number of polls without completions after which the link checks for
// asynchronous events. The check is a system call (0.3 µs, 7 µs in a virtual kernel) and a
// poll takes 50 ns or more, so this costs below one per cent; the events concern failures,
// which may be reported 0.2 ms late.
const asyncEvery = 4096

// Poll implements fabric.Link.
// Hot path.
func (l *Link) Poll(cs []fabric.Completion) int {
	l.extend()
	n := 0
	if l.q.Len() > 0 {
		if n = l.q.Pop(cs); n == len(cs) {
			return n
		}
	}
	if l.giveBack != 0 {
		l.q.Reserve(-l.giveBack)
		l.giveBack = 0
	}
	if l.closed.Load() {
		return n
	}
	if l.refill {
		l.refillAll()
	}
	k, got := l.pollPort(&l.adapter, cs[n:])
	if n += k; got == 0 {
		if l.idle++; l.idle%asyncEvery == 0 {
			l.asyncEvents()
			look(l)
		}
	}
	for _, x := range l.spares.opened() {
		k, _ = l.pollPort(&x.adapter, cs[n:])
		n += k
	}
	if l.splitting > 0 {
		l.advanceAll()
	}
	if n < len(cs) && l.q.Len() > 0 {
		n += l.q.Pop(cs[n:])
	}
	return n
}

// extend makes room in q for what endpoints made since may report.
func (l *Link) extend() {
	if l.reserve.Load() != 0 {
		l.q.Reserve(int(l.reserve.Swap(0)))
	}
}

// failing returns the endpoints for callers that report that some have failed: q has room for that, also of
// those made since the last Poll.
func (l *Link) failing() []*endpoint {
	eps := *l.eps.Load() // before their room is made: endpoints reserve it first
	l.extend()
	return eps
}

// pump moves completions from the completion queue to q, into reserved places, and reports
// whether there were any. It posts no receives, so that peers cannot fill q beyond the
// reservation; the next Poll does.
func (l *Link) pump() bool {
	l.extend()
	some := l.pumpFrom(&l.adapter)
	for _, x := range l.spares.opened() {
		some = l.pumpFrom(&x.adapter) || some
	}
	l.refill = l.refill || some
	return some
}

// pumpFrom does so with the completion queue of a port.
func (l *Link) pumpFrom(at *adapter) (some bool) {
	var c fabric.Completion
	for range 1 + at.cq.Cap()/len(l.wcs) {
		got, err := at.cq.Poll(l.wcs[:])
		if err != nil {
			l.broken(at)
		}
		for i := range got {
			some = true
			if l.handle(at, &l.wcs[i], &c, false) {
				l.push(c)
			}
		}
		if got < len(l.wcs) {
			break
		}
	}
	return some
}

// pollPort polls the completion queue of a port once. It returns the number of completions in cs, and that of
// the device's.
// Hot path.
func (l *Link) pollPort(at *adapter, cs []fabric.Completion) (n, got int) {
	got, err := at.cq.Poll(l.wcs[:min(len(cs), len(l.wcs))])
	if err != nil {
		l.broken(at)
	}
	for i := range got {
		if l.handle(at, &l.wcs[i], &cs[n], true) {
			n++
		}
	}
	return n, got
}

// push appends to q, which has room for everything that can be outstanding.
func (l *Link) push(c fabric.Completion) {
	if !l.q.Push(c) {
		panic("ibv: more completions than requests and receives: slots miscounted")
	}
}

// handle processes one completion, of the port of at. It reports whether it set c; further results are added
// to q.
func (l *Link) handle(at *adapter, w *verbs.WC, c *fabric.Completion, refill bool) bool {
	eps := *l.eps.Load()
	idx := uint32(w.ID>>idIdxShift) & (maxEndpoints - 1)
	if int(idx) >= len(eps) {
		return false
	}
	e := eps[idx]
	if w.ID&idRecv == 0 && w.Op == verbs.WCRecvWithImm && w.Status == verbs.WCSuccess {
		return unsolicited(at, eps, w, c)
	}
	if e == nil || e.gen != w.ID>>idGenShift&idGenMask {
		return false // of an endpoint closed meanwhile
	}
	st := e.state.Load()
	if st == stDown || st == stClosed {
		return false // reported when it went down
	}
	if st == stNew && w.ID == e.tag|proofID {
		e.proof.Store(1 + int32(w.Status))
		return false
	}
	if st == stNew && w.ID&idRecv != 0 && w.Status == verbs.WCSuccess && !e.keeps.Load() { // what is outstanding of one that continues is counted
		e.proof.CompareAndSwap(0, 1+int32(w.Status))
	}
	if st == stNew && w.Status != verbs.WCSuccess && e.opt.Prove {
		return false // because the proof has failed
	}
	if st == stSuspended && w.Status != verbs.WCSuccess && e.again.expects(w) {
		return false
	}
	if w.ID&idRecv != 0 {
		return e.received(w, c, refill)
	}
	seq := uint32(w.ID)
	if seq-e.head >= e.tail-e.head {
		return false // not outstanding: the device repeats a completion
	}
	if w.Status != verbs.WCSuccess {
		if e.closing {
			return false // flushed by Close
		}
		l.failed(e, w, seq)
		return false
	}
	return succeeded(e, seq, c)
}

// succeeded processes the success of slot seq, and of those before it. It reports whether it set c.
// Hot path.
func succeeded(e *endpoint, seq uint32, c *fabric.Completion) bool {
	s := &e.slots[seq&e.mask()]
	if e.lost(s) {
		e.down(fabric.Completion{Status: fabric.StatusUnknown, Vendor: VendorLostResult}, seq, true)
		return false
	}
	e.head = seq + 1
	e.completed(s)
	e.mail.settle()
	if f := s.flags & (slotSignaled | slotMore | slotLost | slotApart); f != slotSignaled {
		if f&(slotLost|slotApart) == 0 {
			return false
		}
		*c = fabric.Completion{ID: s.id, EP: e.id, Op: s.op, Status: fabric.StatusLostResult, Vendor: VendorLostResult}
		if f&slotApart != 0 {
			c.Status, c.Vendor = fabric.StatusApart, 0
		}
		return true
	}
	*c = fabric.Completion{ID: s.id, EP: e.id, Op: s.op}
	return true
}

// Carries implements fabric.Carried.
func (l *Link) Carries(ep fabric.Endpoint) (is, atomics bool) {
	e, is := ep.(*endpoint)
	return is && e.carried.Load(), l.noAtomics
}

// Completed implements fabric.Carried.
// Hot path, of endpoints with a carrier.
func (l *Link) Completed(c *fabric.Completion) (set bool) {
	if c.EP&carriedBit == 0 {
		return true
	}
	eps := *l.eps.Load()
	idx := int(c.EP & (maxEndpoints - 1))
	if idx >= len(eps) || eps[idx] == nil || eps[idx].again == nil {
		return false
	}
	e := eps[idx]
	r := e.again
	by := e.carry
	if by == nil || by.id != c.EP {
		if by = r.retired; by == nil || by.id != c.EP {
			return false
		}
	}
	l.extend()
	switch st := e.state.Load(); {
	case st == stDown || st == stClosed || c.Op == fabric.OpPath:
	case c.Op == fabric.OpNotify:
		by.got++
		c.EP = e.id
		return true
	case by == r.retired:
		by.lost = true
	case st == stSuspended && !r.leaving:
		r.failed = true
	case c.Op == fabric.OpDown:
		e.down(fabric.Completion{Op: fabric.OpDown, Status: c.Status, Vendor: c.Vendor}, 0, false)
	case c.Status != fabric.StatusOK:
		e.down(fabric.Completion{Status: c.Status, Vendor: c.Vendor}, uint32(c.ID), true)
	default:
		e.mail.carriedOut(uint32(c.ID))
		set = succeeded(e, uint32(c.ID), c)
		r.carryOn()
	}
	return set
}

// received processes the completion of a receive.
func (e *endpoint) received(w *verbs.WC, c *fabric.Completion, refill bool) bool {
	if e.closing {
		return false
	}
	if w.Status != verbs.WCSuccess {
		// The queue pair is in the error state. Outstanding requests fail behind this
		// completion, and their statuses give the reason, or at least the fact.
		if e.head == e.tail {
			st, vendor := statusOf(w.Status, w.VendorErr)
			if e.again.takes(w.Status) {
				suspend(e, fmt.Errorf("%w: the queue pair has failed", fabric.ErrFlushed))
				return false
			}
			e.down(fabric.Completion{Op: fabric.OpDown, Status: st, Vendor: vendor}, 0, false)
		}
		return false
	}
	e.recvsUsed++
	set := true
	if w.Op == verbs.WCRecv && w.Flags&verbs.WCWithImm == 0 {
		// Without content it is an empty request, see endpoint.soften.
		set = w.ByteLen > 0 && e.mail.opened(w, c)
	} else {
		*c = fabric.Completion{EP: e.id, Op: fabric.OpNotify, Imm: w.Imm(), Bytes: w.ByteLen}
	}
	e.mail.emptied(w)
	if refill && e.recvsUsed >= min(e.recvs/4, len(e.l.rwrs)) && e.state.Load() == stConnected {
		e.repost()
	}
	return set
}

// unsolicited processes the completion of a peer's write with immediate that took no
// receive, as on devices that need none for them: only the queue pair tells the endpoint.
func unsolicited(at *adapter, eps []*endpoint, w *verbs.WC, c *fabric.Completion) bool {
	for _, e := range eps {
		if e == nil || e.at() != at || e.qp.Num() != w.QPN || e.closing {
			continue
		}
		if s := e.state.Load(); s == stDown || s == stClosed {
			return false
		}
		*c = fabric.Completion{EP: e.id, Op: fabric.OpNotify, Imm: w.Imm(), Bytes: w.ByteLen}
		return true
	}
	return false
}

// repost replenishes the receives.
func (e *endpoint) repost() {
	if err := e.postRecvs(e.l.rwrs[:]); err != nil {
		e.down(fabric.Completion{Op: fabric.OpDown, Status: fabric.StatusUnknown}, 0, false)
	}
}

// refillAll replenishes the receives of all endpoints, which pump does not.
func (l *Link) refillAll() {
	l.refill = false
	for _, e := range *l.eps.Load() {
		if e == nil || e.recvsUsed < min(e.recvs/4, len(l.rwrs)) {
			continue
		}
		if e.state.Load() == stConnected {
			e.repost()
		}
	}
}

// failed takes e down because slot seq failed. Not on the hot path.
func (l *Link) failed(e *endpoint, w *verbs.WC, seq uint32) {
	st, vendor := statusOf(w.Status, w.VendorErr)
	if e.again.takes(w.Status) {
		l.asyncEvents()
		if s := e.state.Load(); s == stConnected {
			why := (&fabric.Completion{EP: e.id, Op: e.slots[seq&e.mask()].op, Status: st, Vendor: vendor}).Err()
			if w.Status == verbs.WCLocQPOpErr {
				why = errUnsent
			}
			suspend(e, why)
		}
		return
	}
	if st == fabric.StatusFlushed {
		// The queue pair went to the error state, and not by this side's doing. If the device
		// moved it, because of an action of the peer, there is an event.
		l.asyncEvents()
		if s := e.state.Load(); s == stDown || s == stClosed {
			return
		}
		if l.soft {
			// rdma_rxe of Linux 6.12 reports a bad local piece like this.
			st = fabric.StatusLocalProtection
		}
	}
	if st == fabric.StatusLocalProtection && l.soft && e.at().Usable() != nil {
		st = fabric.StatusPeerGone // rdma_rxe says the same if it cannot send, where adapters try until PeerTimeout
	}
	e.down(fabric.Completion{Status: st, Vendor: vendor}, seq, true)
}

// asyncEvents handles the devices' asynchronous events. It makes at least one system call.
func (l *Link) asyncEvents() {
	l.asyncEventsOf(&l.adapter)
	for _, x := range l.spares.opened() {
		l.asyncEventsOf(&x.adapter)
	}
}

func (l *Link) asyncEventsOf(at *adapter) {
	for {
		ev, ok, err := at.ctx.AsyncEvent()
		if err != nil || !ok {
			return
		}
		l.happened(at, ev)
	}
}

// happened handles an asynchronous event of a port's device.
func (l *Link) happened(at *adapter, ev verbs.AsyncEvent) {
	if ev.Type == verbs.EventPortErr && ev.Port == at.port {
		l.abandon(at)
	}
	if !ev.Fatal() {
		return
	}
	if ev.Type == verbs.EventDeviceFatal {
		at.gone.Store(true)
	}
	for _, e := range l.failing() {
		if e == nil || e.carry != nil || e.at() != at || ev.Type != verbs.EventCQErr && ev.Type != verbs.EventDeviceFatal && ev.QPN != e.qp.Num() {
			continue
		}
		if ev.Type == verbs.EventQPFatal && e.again.takes(verbs.WCFlushErr) {
			suspend(e, fmt.Errorf("%w: %v", fabric.ErrFlushed, ev.Type))
			continue
		}
		e.down(fabric.Completion{Op: fabric.OpDown, Status: eventStatus(ev.Type), Vendor: uint32(ev.Type)}, 0, false)
	}
}

// eventStatus returns the status for an endpoint that the event took down.
func eventStatus(t verbs.EventType) fabric.Status {
	switch t {
	case verbs.EventQPAccessErr, verbs.EventQPReqErr:
		// This side refused a request of the peer.
		return fabric.StatusRemoteInvalid
	}
	return fabric.StatusUnknown
}

// abandon lets endpoints continue over another port, if they can: theirs is down.
func (l *Link) abandon(at *adapter) {
	for _, e := range l.failing() {
		if e != nil && e.carry == nil && e.at() == at && e.state.Load() == stConnected && e.keeps.Load() && e.again.ports > 1 && e.again.takes(verbs.WCRetryExcErr) {
			suspend(e, errPortDown)
		}
	}
}

// broken takes the endpoints of a port down: its completion queue no longer works.
func (l *Link) broken(at *adapter) {
	for _, e := range l.failing() {
		if e != nil && e.carry == nil && e.at() == at {
			e.down(fabric.Completion{Op: fabric.OpDown, Status: fabric.StatusUnknown}, 0, false)
		}
	}
}

// FD implements fabric.Link: an epoll descriptor over the completion channel
// and the device's asynchronous events.
func (l *Link) FD() int { return l.epfd }

// Arm implements fabric.Link. Completions that arrived before the request for an event may
// raise none, so Arm polls once more afterwards; any completion found, even one that only
// frees slots, prevents sleep.
func (l *Link) Arm() (bool, error) {
	if l.closed.Load() {
		return false, fmt.Errorf("arm ibv link: %w", fabric.ErrClosed)
	}
	if l.q.Len() > 0 || l.splitting > 0 && l.stalled() {
		return false, nil
	}
	if err := l.arm(); err != nil {
		return false, err
	}
	for _, x := range l.spares.opened() {
		if err := x.arm(); err != nil {
			return false, err
		}
	}
	if l.pump() {
		return false, nil
	}
	look(l) // after completions have been taken, which may have waited for as long as the owner did not poll
	return l.q.Len() == 0, nil
}

// Disarm implements fabric.Link. The request for an event cannot be cancelled; armed stays
// set until its event has been read.
func (l *Link) Disarm() {
	if l.closed.Load() {
		return
	}
	happened := l.disarm()
	for _, x := range l.spares.opened() {
		happened = x.disarm() || happened
	}
	if happened {
		l.pump()
		l.asyncEvents()
	}
}

// stalled reports whether a split has no request with the device, so that no completion
// would wake the owner to continue it.
func (l *Link) stalled() bool {
	for _, e := range *l.eps.Load() {
		if e != nil && e.split.left > 0 && e.head == e.tail && e.state.Load() == stConnected {
			return true
		}
	}
	return false
}

// advanceAll continues the splits of all endpoints.
func (l *Link) advanceAll() {
	for _, e := range *l.eps.Load() {
		if e != nil && e.split.left > 0 && e.state.Load() == stConnected && !silent(e) {
			e.advance()
		}
	}
}

// statusOf translates a completion status. vendor is the device's code, or the status
// itself if fabric has no equivalent.
func statusOf(s verbs.WCStatus, vendorErr uint32) (st fabric.Status, vendor uint32) {
	switch s {
	case verbs.WCSuccess:
		return fabric.StatusOK, 0
	case verbs.WCLocLenErr:
		return fabric.StatusLocalLength, vendorErr
	case verbs.WCLocProtErr, verbs.WCLocAccessErr, verbs.WCMWBindErr:
		return fabric.StatusLocalProtection, vendorErr
	case verbs.WCLocQPOpErr:
		// Post rejects everything that is invalid for a queue pair of this kind, except a local
		// key (rdma_rxe of Linux 6.1).
		return fabric.StatusLocalProtection, vendorErr
	case verbs.WCFlushErr:
		return fabric.StatusFlushed, vendorErr
	case verbs.WCRemAccessErr:
		return fabric.StatusRemoteAccess, vendorErr
	case verbs.WCRemInvReqErr, verbs.WCBadRespErr:
		return fabric.StatusRemoteInvalid, vendorErr
	case verbs.WCRemOpErr, verbs.WCRemAbortErr:
		return fabric.StatusRemoteOp, vendorErr
	case verbs.WCRetryExcErr, verbs.WCRespTimeoutErr:
		return fabric.StatusPeerGone, vendorErr
	case verbs.WCRNRRetryExcErr:
		return fabric.StatusNotReady, vendorErr
	}
	if vendorErr == 0 {
		vendorErr = uint32(s)
	}
	return fabric.StatusUnknown, vendorErr
}

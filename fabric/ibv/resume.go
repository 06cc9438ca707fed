package ibv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/verbs"
)

// An endpoint whose queue pair fails continues on another one, if both sides are configured so
// (Options.Resume). Memory, its keys and the requests stay as they are: they belong to the device. Each
// side stops its queue pair, takes the completions that are left, and tells the peer in a letter the next
// packet that it expects; with that the peer knows which of its requests were executed, because it knows
// how many packets each has. It posts again, in order and before anything else,
//
//	a request that was not executed       as it was; nothing behind it was executed, so that a part of a
//	                                      write that was placed is placed again
//	a read that was executed              as it was, unless a fenced request behind it was executed:
//	                                      then it was complete
//	an atomic that was executed           as an empty write, which completes in its place with
//	                                      StatusLostResult
//	another request that was executed     as an empty write
//
// The new queue pair has another number and begins with a random packet number: what is left of the old
// one in the network changes no memory.
//
// A letter, little-endian:
//
//	 0  magic "RMAr"
//	 4  version, 1
//	 5  0 when the sender has stopped its queue pair, 1 when that of this connection takes packets
//	 6  0 (2)
//	 8  number of the connection, from 1 (4)
//	12  the packet that the queue pair of the connection before expects (4)
//	16  address of the queue pair of this connection (40)
//
// Each side sends both letters, which differ in that byte only, and posts when it has the other side's. An
// endpoint that is down sends an empty letter.

const (
	letterMagic   = "RMAr"
	letterVersion = 1
	resumeSize    = 16 + addrSize

	// pause is the time between two looks at what the device or the network does.
	pause, readyPause = 100 * time.Microsecond, 10 * time.Millisecond

	// resumeTimes is the number of PeerTimeouts in which the endpoint must continue, and in which the
	// first outstanding request must complete after it was lost once.
	resumeTimes = 2

	// minAnswer is the least time in which the peer must answer the first letter, see resumption.patience.
	minAnswer = 100 * time.Millisecond

	// maxStuck is the number of queue pairs that fail for another reason than silence before the same request
	// is complete, after which it is taken for the reason.
	maxStuck = 16

	// maxSpan is the number of packets in flight up to which a packet number tells which it is.
	maxSpan = 1 << 23
)

var (
	errRecalled  = fmt.Errorf("%w: the other side has lost the connection", fabric.ErrPeerGone)
	errEnded     = fmt.Errorf("%w: the other side has ended", fabric.ErrPeerGone)
	errNoAnswer  = fmt.Errorf("%w: no answer about another connection", fabric.ErrPeerGone)
	errBadLetter = errors.New("malformed letter about another connection")
	errBadTally  = errors.New("the peer has executed what was not posted")
	errUndrained = errors.New("the device does not complete the requests of the failed queue pair")
	errOver      = errors.New("the endpoint has ended")
	errAgain     = errors.New("the next connection is lost as well")
)

// resumption is what an endpoint needs to continue. The owner's, except what Rejoin alone uses.
type resumption struct {
	keep
	e     *endpoint
	lost  uint64
	why   error     // why there is no connection; nil: there is one
	at    uint32    // endpoint.head at the last loss
	since time.Time // the first loss with that head
	stuck int       // losses since

	round   uint32 // number of the connection
	mark    uint64 // ID of the marker in the send queue
	marks   int    // markers that the device has yet to complete
	renewed bool   // the queue pair is the next connection's
	failed  bool   // and has failed
	deaf    bool   // it expects the first packet, without knowing that
	first   uint32 // the number of that

	// Rejoin's.
	mine, theirs resumeLetter
	old          []*verbs.QP // to be closed, which may take long
}

// resumeLetter is the content of a letter.
type resumeLetter struct {
	ready    bool
	round    uint32
	expected uint32
	address  [addrSize]byte
}

func (x *resumeLetter) append(b []byte) []byte {
	b = append(b, letterMagic...)
	b = append(b, letterVersion, 0, 0, 0)
	if x.ready {
		b[len(b)-3] = 1
	}
	b = binary.LittleEndian.AppendUint32(b, x.round)
	b = binary.LittleEndian.AppendUint32(b, x.expected)
	return append(b, x.address[:]...)
}

// parseResumeLetter parses a peer's letter, which is untrusted; the address is not checked.
func parseResumeLetter(b []byte) (x resumeLetter, err error) {
	if len(b) != resumeSize || string(b[:4]) != letterMagic || b[4] != letterVersion || b[5] > 1 || b[6] != 0 || b[7] != 0 {
		return x, errBadLetter
	}
	x = resumeLetter{ready: b[5] == 1, round: binary.LittleEndian.Uint32(b[8:]), expected: binary.LittleEndian.Uint32(b[12:]), address: [addrSize]byte(b[16:])}
	if x.round == 0 || x.expected > psnMask {
		return x, errBadLetter
	}
	return x, nil
}

// expected returns the next packet that qp expects.
func expected(qp *verbs.QP) (uint32, error) {
	a, err := qp.Query(verbs.AttrRQPSN)
	return a.RQPSN & psnMask, err
}

// begin is called when the endpoint is being connected with one that continues as well.
func (r *resumption) begin(mtu verbs.MTU) error {
	r.e.keeps = true
	return r.keep.begin(r.e, mtu)
}

func (r *resumption) close() error {
	if r == nil {
		return nil
	}
	return r.free()
}

// pass is the function of that name, for an endpoint that continues.
// Hot path.
func (r *resumption) pass(wrs []verbs.SendWR) (n int, err error) {
	n = len(wrs)
	up := r.e.state.Load() == stConnected
	if up {
		n, err = r.e.qp.PostSend(wrs)
	}
	if r.add(wrs[:n]); up && n > 0 {
		r.sent(uint32(wrs[n-1].ID) + 1)
	}
	return n, err
}

// takes reports whether the endpoint continues when a request or receive has failed with s.
func (r *resumption) takes(s verbs.WCStatus) bool {
	if r == nil || r.e.state.Load() != stConnected || !r.e.keeps || !failure(r.e.l, s) {
		return false
	}
	now := time.Now()
	if r.stuck == 0 || r.e.head == r.e.tail || r.e.head != r.at {
		r.stuck, r.at, r.since = 0, r.e.head, now
	}
	r.stuck++
	silent := s == verbs.WCRetryExcErr || s == verbs.WCRespTimeoutErr
	return now.Sub(r.since) <= resumeTimes*r.e.opt.PeerTimeout && (silent || r.stuck <= maxStuck)
}

// failure reports whether a request or receive that ended like this says no more than that its queue pair
// has failed.
func failure(l *Link, s verbs.WCStatus) bool {
	switch s {
	case verbs.WCFlushErr, verbs.WCRetryExcErr, verbs.WCRespTimeoutErr:
		return true
	case verbs.WCLocQPOpErr: // rdma_rxe cannot send, without its address or a route; or the request is bad
		return l.soft
	}
	return false
}

// errUnsent is why a queue pair of rdma_rxe has failed whose request ended with a local operation error.
var errUnsent = fmt.Errorf("%w: the device could not send: its interface has no address or route, or a local key is wrong", fabric.ErrFlushed)

// suspend stops the queue pair, which has failed, or which the peer has left.
func suspend(e *endpoint, why error) {
	r := e.again
	_ = e.qp.ToErr()
	e.state.Store(stSuspended)
	r.lost++
	r.why, r.marks, r.renewed, r.failed = why, 0, false, false
	r.mark = e.tag | uint64(e.head-1) // not outstanding
	if n, _ := e.qp.PostSend([]verbs.SendWR{{ID: r.mark, Op: verbs.OpWrite, Flags: verbs.SendSignaled}}); n == 1 {
		r.marks++
	}
	if n, _ := e.qp.PostRecv([]verbs.RecvWR{{ID: e.tag | recvMark}}); n == 1 {
		r.marks++
	}
	if r.marks < 2 {
		r.marks = -1 // never drained
	}
	_ = e.qp.ToErr() // once more: rdma_rxe looks at receives posted to a failed queue pair only then
	e.l.push(fabric.Completion{EP: e.id, Op: fabric.OpPath})
}

// recvMark is the ID of the marker in the receive queue, besides the tag.
const recvMark = idRecv | 1<<32 - 1

// expects handles a failed completion of a suspended endpoint. It returns false for those that say more
// than that the queue pair has failed.
func (r *resumption) expects(w *verbs.WC) bool {
	if !failure(r.e.l, w.Status) {
		return false
	}
	switch {
	case r.renewed:
		r.failed = true
	case w.ID == r.mark || w.ID == r.e.tag|recvMark:
		r.marks--
	}
	return true
}

// FailQueuePairs puts the queue pairs of all endpoints that continue into the error state, as a failure
// does: for tests of what follows. The owner of the link calls it.
func FailQueuePairs(l *Link) {
	for _, e := range *l.eps.Load() {
		if e != nil && e.again != nil && e.state.Load() != stClosed {
			_ = e.qp.ToErr()
		}
	}
}

// run is endpoint.Rejoin.
func (r *resumption) run(ctx context.Context, by *fabric.Courier) error {
	e := r.e
	err := r.rejoin(ctx, by)
	for _, qp := range r.old {
		err = errors.Join(err, qp.Close())
	}
	r.old = nil
	if err == nil {
		return nil
	}
	by.Own(func() {
		if e.state.Load() == stSuspended {
			e.setErr(fmt.Errorf("%w: %w; no other connection: %w", fabric.ErrDown, r.why, err))
			st := fabric.StatusPeerGone
			if errors.Is(err, errBadLetter) || errors.Is(err, errBadTally) {
				st = fabric.StatusRemoteInvalid
			}
			e.down(fabric.Completion{Op: fabric.OpDown, Status: st}, 0, false)
		}
	})
	if !errors.Is(err, errEnded) {
		_ = by.Send(ctx, []byte{})
	}
	return fmt.Errorf("ibv endpoint %d: %w", e.id, err)
}

func (r *resumption) rejoin(ctx context.Context, by *fabric.Courier) error {
	e := r.e
	st := stDown
	by.Own(func() {
		if e.state.Load() == stConnected && by.Sent() {
			if e.l.pump(); e.state.Load() == stConnected && e.keeps {
				suspend(e, errRecalled)
			}
		}
		st = e.state.Load()
	})
	switch st {
	case stConnected:
		return nil
	case stSuspended:
	default:
		return r.refuse(ctx, by)
	}
	ctx, cancel := context.WithTimeout(ctx, resumeTimes*e.opt.PeerTimeout)
	defer cancel()
	err := errAgain
	for errors.Is(err, errAgain) {
		err = r.turn(ctx, by)
	}
	return err
}

// refuse takes the letters to an endpoint that is down. It returns errEnded if the peer's is as well.
func (r *resumption) refuse(ctx context.Context, by *fabric.Courier) error {
	err := errEnded
	for by.Sent() {
		b, nerr := by.Next(ctx)
		if nerr != nil {
			return nerr
		}
		if len(b) > 0 {
			err = errOver
		}
	}
	return err
}

// turn makes one connection. It returns errAgain if the other side has lost it already, or this one.
func (r *resumption) turn(ctx context.Context, by *fabric.Courier) error {
	if err := r.drain(ctx, by); err != nil {
		return err
	}
	if err := r.own(by, r.renew); err != nil {
		return err
	}
	if err := by.Send(ctx, r.mine.append(nil)); err != nil {
		return err
	}
	wait, cancel := context.WithTimeoutCause(ctx, r.patience(), errNoAnswer)
	defer cancel()
	if err := r.hear(wait, by); err != nil {
		return err
	}
	if err := r.connect(ctx, by); err != nil {
		return err
	}
	if err := r.own(by, r.adopt); err != nil {
		return err
	}
	r.mine.ready = true
	if err := by.Send(ctx, r.mine.append(nil)); err != nil {
		return err
	}
	if err := r.hear(ctx, by); err != nil {
		return err
	}
	return r.own(by, r.resume)
}

// patience is the time in which the peer must answer the first letter: PeerTimeout, or a quarter of it if the
// peer was silent for PeerTimeout before.
func (r *resumption) patience() time.Duration {
	d := r.e.opt.PeerTimeout
	if errors.Is(r.why, fabric.ErrPeerGone) {
		d /= 4
	}
	return max(d, minAnswer)
}

// own runs f as the owner, unless the endpoint has ended.
func (r *resumption) own(by *fabric.Courier, f func() error) (err error) {
	by.Own(func() {
		if r.e.l.pump(); r.e.state.Load() != stSuspended {
			err = errOver
			return
		}
		err = f()
	})
	return err
}

// hear takes the peer's next letter, the first or the second about this connection.
func (r *resumption) hear(ctx context.Context, by *fabric.Courier) error {
	b, err := by.Next(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case len(b) == 0:
		return errEnded
	}
	x, err := parseResumeLetter(b)
	if err != nil {
		return err
	}
	if x.round != r.round || x.ready != r.mine.ready || x.ready && (x.expected != r.theirs.expected || x.address != r.theirs.address) {
		return errBadLetter
	}
	r.theirs = x
	return nil
}

// drain waits until the device has flushed the markers: it has processed no packet after that, so that the
// one that the queue pair expects is known.
func (r *resumption) drain(ctx context.Context, by *fabric.Courier) error {
	for ; ; time.Sleep(pause) {
		left := 0
		if err := r.own(by, func() error { left = r.marks; return nil }); err != nil || left == 0 {
			return err
		}
		if left < 0 || ctx.Err() != nil {
			return errUndrained
		}
	}
}

// renew replaces the queue pair, which is stopped and drained.
func (r *resumption) renew() error {
	e := r.e
	l := e.l
	psn, err := expected(e.qp)
	if err != nil {
		return err
	}
	if r.deaf {
		psn, r.deaf = r.first, false
	}
	qp, err := l.createQP(e.queue, e.recvs)
	if err != nil {
		return err
	}
	e.mu.Lock()
	r.old = append(r.old, e.qp)
	e.qp, e.psn = qp, rand.Uint32()&psnMask
	e.mu.Unlock()
	l.mu.Lock()
	retag(e)
	l.mu.Unlock()
	e.mail.empty()
	e.recvsUsed = e.recvs
	if err := e.postRecvs(l.rwrs[:]); err != nil {
		return err
	}
	waiting := l.q.Len() // of the queue pair before; another one's may come
	l.q.Reserve(waiting)
	l.giveBack += waiting
	r.round++
	r.renewed = true
	r.mine = resumeLetter{round: r.round, expected: psn, address: [addrSize]byte(e.Address())}
	return nil
}

// connect connects the queue pair with the peer's, as soon as there is a route.
func (r *resumption) connect(ctx context.Context, by *fabric.Courier) error {
	e := r.e
	a, err := accept(e, r.theirs.address[:])
	if err != nil {
		return fmt.Errorf("%w: %w", errBadLetter, err)
	}
	for {
		e.mu.Lock()
		if e.state.Load() != stSuspended {
			e.mu.Unlock()
			return errOver
		}
		attr, err := ready(e, &a)
		st, qerr := e.qp.State()
		e.mu.Unlock()
		if err != nil && qerr == nil && st != verbs.StateInit { // it has failed already: the next one is needed
			return r.own(by, func() error {
				r.failed, r.deaf, r.first = true, attr == nil, a.psn
				return nil
			})
		}
		if err == nil {
			if attr.PathMTU.Bytes() != 1<<r.mtuShift {
				return fmt.Errorf("%w: path MTU %v", errBadLetter, attr.PathMTU)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", fabric.ErrPeerGone, err)
		case <-time.After(readyPause):
		}
	}
}

// adopt takes the peer's word for what it has executed.
func (r *resumption) adopt() error {
	e := r.e
	first, total := r.psn, uint64(0)
	if e.head != r.posted {
		first = r.of(e.head).psn
	}
	for i := e.head; i != r.posted; i++ {
		total += uint64(r.of(i).packets)
	}
	got := uint64((r.theirs.expected - first) & psnMask)
	if total > maxSpan {
		return fmt.Errorf("%d packets are in flight, more than the peer can tell apart", total)
	}
	if got > total {
		return errBadTally
	}
	done := false // all reads and atomics before, because of a fence
	for i := r.posted; i != e.head; {
		i--
		x := r.of(i)
		end := total
		if total -= uint64(x.packets); end > got {
			continue
		}
		done = r.executed(i, x, done)
	}
	r.posted, r.psn = e.head, e.psn
	return nil
}

// executed replaces a request that was executed, and whose completion has not arrived. It returns whether
// the reads and atomics before it were complete, as done says of itself.
func (r *resumption) executed(seq uint32, x *kept, done bool) bool {
	e := r.e
	s := &e.slots[seq&e.mask()]
	done, complete := done || x.wr.Flags&verbs.SendFence != 0, done
	switch x.wr.Op {
	case verbs.OpRead:
		if !complete {
			return done
		}
	case verbs.OpFetchAdd, verbs.OpCmpSwap:
		if s.flags&slotPoison != 0 {
			e.cure()
			s.flags &^= slotPoison
		}
		if !complete {
			s.flags |= slotLost
			x.wr.Flags |= verbs.SendSignaled
		}
	}
	op := verbs.OpWrite
	if e.guarded {
		op = verbs.OpSend // see endpoint.soften
	}
	x.wr, x.packets = verbs.SendWR{Op: op, Flags: x.wr.Flags & verbs.SendSignaled}, 1
	return done
}

// resume posts what is left of the connection before, and what was posted meanwhile.
func (r *resumption) resume() error {
	e := r.e
	l := e.l
	if r.failed {
		suspend(e, r.why)
		return errAgain
	}
	if e.head != e.tail { // so that head advances also if nothing follows
		r.of(e.tail - 1).wr.Flags |= verbs.SendSignaled
	}
	for r.posted != e.tail {
		n := min(int(e.tail-r.posted), chainMax)
		for i := range n {
			seq := r.posted + uint32(i)
			l.wrs[i] = r.of(seq).wr
			l.wrs[i].ID = e.tag | uint64(seq)
		}
		k, err := e.qp.PostSend(l.wrs[:n])
		r.sent(r.posted + uint32(k))
		if k < n {
			return errors.Join(errors.New("the queue pair takes less than the one before"), err)
		}
	}
	e.moved = cpu.Ticks()
	r.why = nil
	l.refill = true
	e.state.Store(stConnected)
	l.push(fabric.Completion{EP: e.id, Op: fabric.OpPath})
	return nil
}

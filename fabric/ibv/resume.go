package ibv

import (
	"errors"
	"fmt"
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
// How the two sides agree on the next connection is in rejoin.go, over which port in spare.go, and without any in carry.go.

const (
	// pause is the time between two looks at what the device or the network does.
	pause, readyPause = 100 * time.Microsecond, 10 * time.Millisecond

	// resumeTimes is the number of PeerTimeouts in which the endpoint must continue, and in which, and in one
	// more for each further port, the first outstanding request must complete after it was lost once.
	resumeTimes = 2

	// carryPart is the part of PeerTimeout in which a queue pair must be connected, before the endpoint gets a carrier.
	carryPart = 2

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
	errBadTally  = errors.New("the peer has executed what was not posted")
	errUndrained = errors.New("the device does not complete the requests of the failed queue pair")
	errOver      = errors.New("the endpoint has ended")
	errAgain     = errors.New("the next connection is lost as well")
	errMoved     = errors.New("the connection is made over another port")
	errNoPort    = errors.New("no port can be connected with the peer's")
)

// resumption is what an endpoint needs to continue. The owner's, except what Rejoin alone uses.
type resumption struct {
	keep
	back
	e     *endpoint
	lost  uint64
	why   error     // why there is no connection; nil: there is one
	at    uint32    // endpoint.head at the last loss
	since time.Time // the first loss with that head
	stuck int       // losses since

	carries bool              // the last attempt is over a carrier
	list    []fabric.WR       // for what is posted to it
	ports   int               // over which both sides can continue
	port    int               // in use, 0: the link's own
	away    away              // from the link's own
	names   map[uint32]uint32 // the peer's keys at the port in use
	missing uint32            // the last key for which the peer was asked
	round   uint32            // number of the connection
	mark    uint64            // ID of the marker in the send queue
	marks   int               // markers that the device has yet to complete
	renewed bool              // the queue pair is the next connection's
	failed  bool              // and has failed
	deaf    bool              // it expects the first packet, without knowing that
	first   uint32            // the number of that

	// Rejoin's.
	mine, theirs resumeLetter
	told         bool        // the peer knows that the endpoint has ended
	lives        bool        // the peer has sent a letter in this round
	heard, ready bool        // its letters about this attempt, or the one to come
	named        bool        // its next letter of names
	adopted      bool        // the peer's word for what it has executed, in this round
	next         int         // attempt
	last         bool        // the carrier is next
	silences     int         // queue pairs in a row that have failed in silence
	silentAt     uint32      // endpoint.head then
	refused      error       // why a port was not used
	old          []*verbs.QP // to be closed, which may take long
}

// expected returns the next packet that qp expects.
func expected(qp *verbs.QP) (uint32, error) {
	a, err := qp.Query(verbs.AttrRQPSN)
	return a.RQPSN & psnMask, err
}

// begin is called when the endpoint is being connected with one that continues as well. If that fails, it may be
// called again, for another peer.
func (r *resumption) begin(mtu verbs.MTU, peer *address) error {
	r.ports, r.carries = min(int(peer.ports), 1+len(r.e.l.opt.Spares)), peer.carries && carriable(r.e)
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
	if up && r.e.carry != nil {
		r.add(wrs)
		r.carryOn()
		return n, nil
	}
	if up && r.e.over != nil {
		return r.passOver(wrs)
	}
	if up {
		n, err = r.e.qp.PostSend(wrs)
	}
	if r.add(wrs[:n]); up && n > 0 {
		r.sent(uint32(wrs[n-1].ID) + 1)
	}
	return n, err
}

// passOver is pass over a spare port. It keeps the requests as they are.
func (r *resumption) passOver(wrs []verbs.SendWR) (n int, err error) {
	r.add(wrs)
	if !r.translate(wrs) {
		return len(wrs), nil
	}
	if n, err = r.e.qp.PostSend(wrs); n > 0 {
		r.sent(uint32(wrs[n-1].ID) + 1)
	}
	return n, err
}

// takes reports whether the endpoint continues when a request or receive has failed with s.
func (r *resumption) takes(s verbs.WCStatus) bool {
	if r == nil || r.e.carry != nil || r.e.state.Load() != stConnected || !r.e.keeps.Load() || !failure(r.e.l, s) {
		return false
	}
	now := time.Now()
	if r.stuck == 0 || r.e.head == r.e.tail || r.e.head != r.at {
		r.stuck, r.at, r.since = 0, r.e.head, now
	}
	r.stuck++
	silent := s == verbs.WCRetryExcErr || s == verbs.WCRespTimeoutErr
	ports := r.ports
	if r.carries {
		ports++
	}
	return now.Sub(r.since) <= time.Duration(resumeTimes+ports-1)*r.e.opt.PeerTimeout && (silent || r.stuck <= maxStuck)
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

// FailQueuePairs puts the queue pairs of all endpoints that continue into the error state, as a failure does, or, if
// silent, takes it that no peer has answered, so that endpoints go on to the next port: for tests of what
// follows. The owner of the link calls it.
func FailQueuePairs(l *Link, silent bool) {
	l.pump()
	for _, e := range l.failing() {
		switch {
		case e == nil || !e.keeps.Load() || e.carry != nil || e.state.Load() != stConnected && e.state.Load() != stSuspended:
		case silent && e.state.Load() == stConnected:
			suspend(e, fabric.ErrPeerGone)
		default:
			_ = e.qp.ToErr()
		}
	}
}

// adopt takes the peer's word for what it has executed.
func (r *resumption) adopt() error {
	e := r.e
	if r.adopted || r.retired != nil { // with an attempt before: nothing was posted since; or all is complete
		r.posted, r.psn, r.adopted = e.head, e.psn, true
		return r.learn()
	}
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
	r.posted, r.psn, r.adopted = e.head, e.psn, true
	return r.learn()
}

// learn takes the peer's names of its memory.
func (r *resumption) learn() error {
	r.names = nil
	if r.e.over == nil {
		return nil
	}
	r.names = make(map[uint32]uint32, len(r.theirs.names))
	for _, x := range r.theirs.names {
		r.names[x.key] = x.there
	}
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
		heal(e, s)
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
	if r.retired != nil {
		r.leave()
		e.carried.Store(false)
		r.port = r.ports // tcp
	}
	r.away.arrived(r.port, r.mine.attempt%r.ports, r.why)
	if r.port = r.mine.attempt % r.ports; r.failed {
		suspend(e, r.why)
		return errAgain
	}
	if e.over != nil && !e.over.atomics {
		for i := e.head; i != e.tail; i++ {
			if op := r.of(i).wr.Op; op == verbs.OpFetchAdd || op == verbs.OpCmpSwap {
				return errApart
			}
		}
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
		if e.over != nil && !r.translate(l.wrs[:n]) {
			return errAgain
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

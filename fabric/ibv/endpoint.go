package ibv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/verbs"
)

// States of an endpoint.
const (
	stNew       uint32 = iota // queue pair in INIT, receives posted
	stConnected               // queue pair in RTS
	stSuspended               // queue pair lost, the next one is being connected
	stDown                    // queue pair in the error state, everything reported
	stClosed                  // queue pair destroyed
)

// slot is one request in the send queue.
type slot struct {
	id    uint64
	op    fabric.Op
	flags uint8
}

// Flags of a slot.
const (
	slotSignaled uint8 = 1 << iota // the caller needs a completion
	slotMore                       // a piece of a split request, not its last
	slotCounted                    // in endpoint.reads
	slotPoison                     // endpoint.cell receives its result
	slotAsk                        // asks the peer for an atomic, see mailbox
	slotAnswer                     // answers the peer, not a request of the caller
	slotLost                       // an atomic that was executed, whose result is lost
	slotApart                      // an atomic that the carrier does not execute
)

// Bits of a request's ID at the device: the endpoint's place in Link.eps, the
// generation of that place, and the number of the slot.
const (
	idRecv     = 1 << 63
	idGenShift = 48
	idGenMask  = 1<<15 - 1
	idIdxShift = 32
)

// endpoint is one queue pair. Unless a field says otherwise, it belongs to the owner or is
// written only before the endpoint connects.
type endpoint struct {
	l     *Link
	id    uint32 // EndpointOptions.ID
	idx   uint32 // in Link.eps
	gen   uint64
	tag   uint64 // of wr_id: gen and idx
	qp    *verbs.QP
	opt   fabric.EndpointOptions
	psn   uint32
	state atomic.Uint32
	err   atomic.Pointer[error]
	mu    sync.Mutex // serialises Connect and Close

	// Slots [head, tail) are with the device, counted modulo 2^32.
	slots   []slot // length a power of two, at least depth
	depth   uint32 // requests the send queue takes
	head    uint32
	tail    uint32
	unasked uint32 // requests since the last one with a device completion
	askAt   uint32 // request a device completion at the latest when unasked reaches this

	reads      uint32 // reads and atomics among the slots; counted on soft devices only
	guarded    bool   // see the package comment, also for what follows
	packet     uint64 // bytes of the path MTU
	split      split
	cell       []byte // result buffer of the one outstanding atomic
	poisonWord uint64 // content of cell until the result arrives
	before     uint64 // content of cell before poison
	moved      int64  // time of the last completion, or of the first post; ticks
	timeout    int64  // the device's time-out, in ticks

	proof atomic.Int32 // 1 + the status of the request of prove, or of one that has arrived; 0: neither is complete

	mail *mailbox // nil where the device needs none

	again   *resumption    // nil: the endpoint ends with its queue pair
	keeps   atomic.Bool    // again is used: the peer's endpoint continues as well
	over    *spare         // the port that it uses, nil: the link's own
	from    verbs.GIDEntry // of that port, to send from
	carry   *carrier       // carries the requests in the place of the queue pair; nil: none
	carried atomic.Bool    // it does
	apart   bool           // its atomics do not exclude those of the link's own device

	closing   bool // the queue pair has been destroyed
	room      int  // entries of the completion queue that it may need
	queue     int  // requests that the queue pair was created for
	recvs     int  // receives that the target side keeps posted
	recvsUsed int  // of these, consumed and to be posted again
}

// recvDepth returns the number of notifications that an endpoint accepts without a poll:
// twice the number that the peer may have outstanding at this side's depth, so that one
// full queue of them can arrive while the previous one is processed. A receive without
// pieces takes 16 to 32 bytes. With more, a slow target could fall further behind; with
// fewer, a peer's device would wait in ordinary operation, 10 ms and more each time.
// peer's device would wait in ordinary operation, 10 ms and more each time.
func recvDepth(depth int) int { return max(2*depth, 256) }

// NewEndpoint implements fabric.Link.
func (l *Link) NewEndpoint(o fabric.EndpointOptions) (fabric.Endpoint, error) {
	e, err := l.newEndpoint(o)
	if err != nil {
		return nil, fmt.Errorf("new ibv endpoint: %w", err)
	}
	return e, nil
}

func (l *Link) newEndpoint(o fabric.EndpointOptions) (*endpoint, error) {
	o.Depth = cmp.Or(o.Depth, fabric.DefaultDepth)
	o.PeerTimeout = cmp.Or(o.PeerTimeout, fabric.DefaultPeerTimeout)
	if o.Depth < 0 || o.PeerTimeout < 0 {
		return nil, fmt.Errorf("depth %d, peer timeout %v: must not be negative", o.Depth, o.PeerTimeout)
	}
	if len(*l.eps.Load()) >= maxEndpoints {
		return nil, fmt.Errorf("%w: %d", ErrTooManyEndpoints, maxEndpoints)
	}
	// A request of very many pieces becomes up to chainMax requests of the device.
	send := max(o.Depth, chainMax)
	queue, mail := send, l.noImm || l.noAtomics || l.noInline
	if l.noAtomics {
		queue += 2 * maxAsks
	}
	recv := max(send, min(recvDepth(send), l.dev.MaxQPWR-l.markers))
	if max(queue, recv)+l.markers > l.dev.MaxQPWR {
		return nil, fmt.Errorf("depth %d: the device has queues of at most %d requests", o.Depth, l.dev.MaxQPWR)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() {
		return nil, fmt.Errorf("ibv link: %w", fabric.ErrClosed)
	}
	room := queue + recv + 2*l.markers
	if err := l.enter(room); err != nil {
		return nil, err
	}
	qp, err := l.createQP(queue, recv)
	if err != nil {
		l.leave(room)
		return nil, err
	}
	e := &endpoint{l: l, from: l.gid, id: o.ID, qp: qp, opt: o, psn: rand.Uint32() & 0xffffff, room: room, recvs: recv, queue: queue, depth: uint32(send), askAt: uint32(max(send/4, 1))}
	size := 1
	for size < queue {
		size *= 2
	}
	e.slots = make([]slot, size)
	fail := func(err error) (*endpoint, error) {
		l.leave(room)
		return nil, errors.Join(err, qp.Close(), e.mail.close())
	}
	if mail {
		if e.mail, err = newMailbox(e); err != nil {
			return fail(err)
		}
	}
	if l.tells && !o.Final {
		e.again = &resumption{e: e}
	}
	e.pick()
	e.recvsUsed = recv
	if err := e.postRecvs(make([]verbs.RecvWR, recv)); err != nil {
		return fail(err)
	}
	l.reserve.Add(int64(e.room + besides)) // before the owner can see e
	e.publish()
	return e, nil
}

// besides is the number of completions that an endpoint may have to report at a time besides
// those of the device: of a split, OpDown, of atomics that the peer was asked for, and OpPath
// for a connection that is lost and for the next one.
const besides = 4 + maxAsks

// pick chooses e's place in the table. Called with mu held.
func (e *endpoint) pick() {
	l := e.l
	idx := slices.Index(*l.eps.Load(), nil)
	if idx < 0 {
		idx = len(*l.eps.Load())
	}
	if idx == len(l.gens) {
		l.gens = append(l.gens, 0)
	}
	e.idx = uint32(idx)
	retag(e)
}

// retag gives e's requests another generation. Called with mu held.
func retag(e *endpoint) {
	e.l.gens[e.idx]++
	e.gen = uint64(e.l.gens[e.idx]) & idGenMask
	e.tag = e.gen<<idGenShift | uint64(e.idx)<<idIdxShift
}

// publish puts e into the table. Called with mu held, after pick.
func (e *endpoint) publish() {
	old := *e.l.eps.Load()
	eps := make([]*endpoint, max(len(old), int(e.idx)+1))
	copy(eps, old)
	eps[e.idx] = e
	e.l.eps.Store(&eps)
}

// remove takes e out of the table. Called with mu held.
func (l *Link) remove(e *endpoint) {
	eps := slices.Clone(*l.eps.Load())
	eps[e.idx] = nil
	l.eps.Store(&eps)
}

// at is the port that e uses.
func (e *endpoint) at() *adapter {
	if e.over != nil {
		return &e.over.adapter
	}
	return &e.l.adapter
}

// Address implements fabric.Endpoint.
func (e *endpoint) Address() []byte {
	l := e.at()
	a := address{mtu: l.mtu, reads: uint8(l.opt.MaxReads), layer: l.attr.LinkLayer, lid: l.attr.LID, gid: e.from.GID, lacks: e.l.lacks(), qpn: e.qp.Num(), psn: e.psn}
	if e.again != nil {
		a.ports = uint8(1 + len(e.l.opt.Spares))
		a.carries = carriable(e)
	}
	return a.append(nil)
}

// Connect implements fabric.Endpoint. It does not wait for the peer, see the package
// comment. The kernel may resolve the route to the peer, which can take several seconds
// that ctx does not bound.
func (e *endpoint) Connect(ctx context.Context, peer []byte) error {
	if err := e.connect(ctx, peer); err != nil {
		return fmt.Errorf("connect ibv endpoint %d: %w", e.id, err)
	}
	return nil
}

func (e *endpoint) connect(ctx context.Context, peer []byte) error {
	a, err := accept(e, peer)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock() // not Link.mu: the kernel may take long
	defer e.mu.Unlock()
	switch e.state.Load() {
	case stConnected, stSuspended:
		return errors.New("it is connected already")
	case stDown, stClosed:
		return fmt.Errorf("%w: %w", fabric.ErrDown, e.reason())
	}
	l := e.l
	mtu := min(l.mtu, a.mtu)
	keeps := e.again != nil && a.ports > 0
	if keeps {
		if err := e.again.begin(mtu, &a); err != nil {
			return err
		}
	}
	e.keeps.Store(keeps) // before the peer's proof can arrive, which the owner takes accordingly
	attr, err := ready(e, &a, mtu)
	if err != nil {
		return err
	}
	if e.guarded = l.guards(a.gid != e.from.GID); e.guarded {
		e.packet = uint64(attr.PathMTU.Bytes())
		e.split.list = make([]fabric.SGE, 0, l.caps.MaxSGE)
		e.poisonWord = rand.Uint64()
		e.timeout = int64(float64(int64(4096)<<attr.Timeout) / cpu.NsPerTick())
	}
	if e.opt.Prove {
		if err := prove(ctx, e); err != nil {
			return err
		}
	}
	if !e.state.CompareAndSwap(stNew, stConnected) {
		return e.reason()
	}
	return nil
}

// carriable reports whether a carrier can execute all requests of e but the device's atomics.
func carriable(e *endpoint) bool { return e.again != nil && e.l.carriers != nil }

// accept parses the peer's address, with which e may connect.
func accept(e *endpoint, peer []byte) (a address, err error) {
	l := e.at()
	if a, err = parseAddress(peer); err != nil {
		return a, err
	}
	if a.layer != l.attr.LinkLayer {
		return a, fmt.Errorf("%w: the peer's port is %v, ours %v", fabric.ErrBadAddress, a.layer, l.attr.LinkLayer)
	}
	if own := e.l.lacks(); a.lacks != own { // over spare ports as well, which lack no more
		return a, fmt.Errorf("%w: the devices lack different operations: the peer's %v, ours %v: use RMA_FABRIC=tcp between them, or RMA_IBV_ATOMICS=host on both if they differ in atomics", fabric.ErrBadAddress, a.lacks, own)
	}
	if a.qpn == e.qp.Num() && a.gid == e.from.GID && a.lid == l.attr.LID {
		return a, fmt.Errorf("%w: it is the endpoint's own", fabric.ErrBadAddress)
	}
	return a, nil
}

// ready connects the queue pair with the peer's, from INIT on. Called with mu held.
func ready(e *endpoint, a *address, mtu verbs.MTU) (*verbs.QPAttr, error) {
	l := e.at()
	from, err := source(l, e.from)
	if err != nil {
		return nil, err
	}
	attr := &verbs.QPAttr{
		PathMTU: mtu, DestQPN: a.qpn, RQPSN: a.psn, SQPSN: e.psn,
		MaxReadsDest: uint8(l.opt.MaxReads), MaxReads: uint8(min(l.opt.MaxReads, int(a.reads))),
		MinRNRTimer: rnrTimer(e.opt.PeerTimeout), Timeout: retries(e.opt.PeerTimeout), RetryCount: maxRetries, RNRRetry: 6,
		AH: l.route(from, a.gid, a.lid),
	}
	if err := e.qp.ToRTR(attr); err != nil {
		if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH) {
			return nil, fmt.Errorf("%w: %w", fabric.ErrBadAddress, err)
		}
		return nil, err
	}
	return attr, e.qp.ToRTS(attr)
}

// Err implements fabric.Endpoint.
func (e *endpoint) Err() error {
	if p := e.err.Load(); p != nil {
		return *p
	}
	return nil
}

func (e *endpoint) reason() error {
	if err := e.Err(); err != nil {
		return err
	}
	return fabric.ErrClosed
}

// setErr keeps the first error.
func (e *endpoint) setErr(err error) { e.err.CompareAndSwap(nil, &err) }

// down ends a working endpoint: it stops the device, reports outstanding requests as
// flushed, then OpDown. Slot fail, if it is outstanding, ends with the status of c.
func (e *endpoint) down(c fabric.Completion, fail uint32, isSlot bool) {
	if s := e.state.Load(); s == stDown || s == stClosed {
		return
	}
	c.EP = e.id
	if isSlot && e.slots[fail&e.mask()].flags&slotAnswer != 0 {
		isSlot = false
		c.Op = fabric.OpDown
	}
	if isSlot && e.slots[fail&e.mask()].flags&slotAsk != 0 && len(e.mail.asks) > 0 {
		e.head = fail + 1
		e.mail.refuse(c)
		return
	}
	if isSlot {
		// A failed piece fails its request.
		for e.slots[fail&e.mask()].flags&slotMore != 0 && fail+1 != e.tail {
			fail++
		}
		s := &e.slots[fail&e.mask()]
		c.ID, c.Op = s.id, s.op
		if s.flags&slotMore != 0 {
			e.dropSplit() // only this endpoint's requests have pieces left
		}
		e.setErr(errDown(c))
		e.l.push(c)
		e.head = fail + 1
	} else {
		e.setErr(errDown(c))
	}
	finish(e, c)
}

func errDown(c fabric.Completion) error { return fmt.Errorf("%w: %w", fabric.ErrDown, c.Err()) }

// finish stops the device for e and reports what is outstanding, then that e is down because
// of c.
func finish(e *endpoint, c fabric.Completion) {
	// A failure here has no remedy; usually the queue pair is in the error state already.
	_ = e.qp.ToErr()
	e.carry.close()
	if e.again != nil {
		e.again.leave()
	}
	e.flush()
	e.state.Store(stDown)
	e.l.push(fabric.Completion{EP: e.id, Op: fabric.OpDown, Status: c.Status, Vendor: c.Vendor})
}

// flush reports the signalled requests that are outstanding.
func (e *endpoint) flush() {
	e.cure()
	for ; e.head != e.tail; e.head++ {
		if s := &e.slots[e.head&e.mask()]; s.flags&slotSignaled != 0 && s.flags&slotMore == 0 {
			e.l.push(fabric.Completion{ID: s.id, EP: e.id, Op: s.op, Status: fabric.StatusFlushed})
		}
	}
	e.mail.flush()
	if w := &e.split.wr; e.dropSplit() && w.Flags&fabric.FlagSignaled != 0 {
		e.l.push(fabric.Completion{ID: w.ID, EP: e.id, Op: w.Op, Status: fabric.StatusFlushed})
	}
}

func (e *endpoint) mask() uint32 { return uint32(len(e.slots) - 1) }

// Close implements fabric.Endpoint.
func (e *endpoint) Close() error {
	l := e.l
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state.Load() == stClosed {
		return nil
	}
	// Completed requests are reported with their results; the device executes none after the
	// queue pair is destroyed.
	l.pump()
	if err := e.qp.Close(); err != nil && !e.at().gone.Load() { // a device that is gone executes nothing
		return fmt.Errorf("close ibv endpoint %d: %w", e.id, err)
	}
	e.setErr(fmt.Errorf("ibv endpoint: %w", fabric.ErrClosed))
	e.closing = true
	e.carry.close()
	if e.again != nil {
		e.again.leave()
	}
	l.pump()
	e.flush()
	e.state.Store(stClosed)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(e)
	l.leave(e.room)
	if e.over != nil {
		e.over.leave(e.room)
	}
	l.giveBack += e.room + besides
	return errors.Join(e.again.close(), l.unlessGone(e.mail.close()))
}

// postRecvs reposts the consumed receives. wrs is scratch space.
func (e *endpoint) postRecvs(wrs []verbs.RecvWR) error {
	for e.recvsUsed > 0 {
		k := min(e.recvsUsed, len(wrs))
		for i := range k {
			wrs[i] = verbs.RecvWR{ID: idRecv | e.tag}
			if e.mail != nil {
				wrs[i] = e.mail.receive(idRecv | e.tag)
			}
		}
		n, err := e.qp.PostRecv(wrs[:k])
		e.recvsUsed -= n
		if err != nil {
			return err
		}
		if n < k {
			return errors.New("the receive queue takes less than it was created for")
		}
	}
	return nil
}

// Outages implements fabric.Resumer.
func (e *endpoint) Outages() (lost uint64, why error) {
	if e.again == nil {
		return 0, nil
	}
	return e.again.lost, e.again.why
}

// Rejoin implements fabric.Rejoiner.
func (e *endpoint) Rejoin(ctx context.Context, by fabric.Courier) error {
	if e.again == nil {
		return fabric.ErrNotSupported
	}
	return e.again.run(ctx, &by)
}

// Seeks implements fabric.Rejoiner.
func (e *endpoint) Seeks() bool { return e.again != nil && e.again.seeks }

var _ fabric.Rejoiner = (*endpoint)(nil)
var _ fabric.Link = (*Link)(nil)

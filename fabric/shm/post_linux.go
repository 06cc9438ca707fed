package shm

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
	"github.com/seed33544411/rma/internal/cpu"
)

var _ fabric.Direct = (*endpoint)(nil)

// outcome is the result of an attempt to execute a request.
type outcome uint8

const (
	executed  outcome = iota // done, with a status
	needsPeer                // only the target's progress engine can execute it
	isFar                    // on private memory: see far
	epDown                   // the endpoint went down meanwhile
)

// Post implements fabric.Endpoint. A request is executed before Post returns unless it
// needs the target or follows one that does.
// Hot path.
func (ep *endpoint) Post(wrs []fabric.WR) (n int, err error) {
	if s := ep.state.Load(); s != stateUp {
		return 0, refusal(s)
	}
	visible := false // the peer has something to see
	quiet := true    // it need not see it soon
	ahead := 0       // number of wrs[n:] that are executed already
	for ; n < len(wrs); n++ {
		wr := &wrs[n]
		if reason := softlink.CheckShape(wr, &ep.link.caps); reason != "" {
			err = &fabric.WRError{Index: n, Op: wr.Op, Reason: reason}
			break
		}
		if ep.cq.Len()+ep.q.len() >= ep.depth {
			break
		}
		if ep.q.len() != 0 {
			ep.q.push(wr)
			continue
		}
		notify := wr.Flags&fabric.FlagNotify != 0
		if notify && !ep.reserve(1) {
			break
		}
		var st fabric.Status
		out := executed
		if ahead > 0 {
			ahead--
		} else if st, out = ep.execute(wr); out == isFar {
			st, out, ahead = ep.far(wrs[n:])
		}
		if out == needsPeer {
			ep.q.push(wr)
			continue
		}
		if out == epDown {
			break
		}
		if st != fabric.StatusOK {
			n = ep.flushPost(wrs, n, st)
			return n, nil
		}
		if wr.Op != fabric.OpRead {
			visible = true
			quiet = quiet && wr.Flags&(fabric.FlagQuiet|fabric.FlagNotify) == fabric.FlagQuiet
			if notify {
				ep.out.pushNotify(wr.Imm, uint32(wr.Len()))
			}
		}
		if wr.Flags&fabric.FlagSignaled != 0 {
			ep.cq.Push(fabric.Completion{ID: wr.ID, EP: ep.id, Op: wr.Op})
		}
	}
	if s := ep.state.Load(); s != stateUp {
		return n, refusal(s)
	}
	if ep.cq.Len()+ep.q.len() != 0 {
		ep.warm()
	}
	if ep.q.len() != 0 {
		ep.advance()
	}
	if visible && ep.isUp() {
		ep.bell.settle()
		ep.bell.tell(quiet)
	}
	return n, err
}

// refusal returns the error of Post in state s.
func refusal(s uint32) error {
	if s == stateNew {
		return fabric.ErrNotConnected
	}
	return fabric.ErrDown
}

// flushPost reports the failure of wrs[n], flushes the rest of the list as far as there is
// room, takes the endpoint down, and returns the number of requests taken.
func (ep *endpoint) flushPost(wrs []fabric.WR, n int, st fabric.Status) int {
	for s := st; n < len(wrs) && ep.cq.Push(completion(ep.id, &wrs[n], s)); n++ {
		s = fabric.StatusFlushed
	}
	ep.bell.fence()
	ep.bell.wake() // for the requests before
	ep.failRequest(st)
	return n
}

// completion returns the completion of wr on endpoint id with status st.
func completion(id uint32, wr *fabric.WR, st fabric.Status) fabric.Completion {
	return fabric.Completion{ID: wr.ID, EP: id, Op: wr.Op, Status: st}
}

// Do implements fabric.Direct.
// Hot path.
func (ep *endpoint) Do(wr *fabric.WR) bool {
	if ep.state.Load() != stateUp || ep.q.len() != 0 || len(wr.Local) != 1 {
		return false
	}
	l := &wr.Local[0]
	n := uint64(l.Len)
	if n == 0 {
		return false
	}
	switch wr.Op {
	case fabric.OpWrite:
		if wr.Flags&fabric.FlagInline == 0 && !ep.link.keys.Allows(l.LKey, l.Addr, n, 0) {
			return false
		}
	case fabric.OpFetchAdd, fabric.OpCompareSwap:
		if n != 8 || wr.RemoteAddr&7 != 0 {
			return false
		}
		fallthrough
	case fabric.OpRead:
		if !ep.link.keys.Allows(l.LKey, l.Addr, n, fabric.AccessLocalWrite) {
			return false
		}
	default:
		return false
	}
	x := ep.lookup(wr.RKey, wr.RemoteAddr, n, softlink.RemoteNeed(wr.Op))
	if x == nil || x.mem == 0 {
		return false
	}
	ep.link.copies.run(&ep.bell, x, wr, n)
	if wr.Op == fabric.OpRead {
		return true // nothing changed for the peer
	}
	ep.bell.settle()
	ep.bell.tell(wr.Flags&fabric.FlagQuiet != 0)
	return true
}

// Reach implements fabric.Direct.
// Hot path.
func (ep *endpoint) Reach(need fabric.Access, rkey uint32, addr uint64, n int) []byte {
	if ep.state.Load() != stateUp || ep.q.len() != 0 || n <= 0 {
		return nil
	}
	x := ep.lookup(rkey, addr, uint64(n), need)
	if x == nil || x.mem == 0 {
		return nil
	}
	orderStores() // after the stores of earlier requests
	return fabric.BytesAt(x.mem+(addr-x.base), n)
}

// Local implements fabric.Direct.
// Hot path.
func (ep *endpoint) Local(need fabric.Access, s fabric.SGE) []byte {
	if !ep.link.keys.Allows(s.LKey, s.Addr, uint64(s.Len), need) {
		return nil
	}
	return fabric.BytesAt(s.Addr, int(s.Len))
}

// Stored implements fabric.Direct.
// Hot path.
func (ep *endpoint) Stored(quiet bool) {
	if ep.isUp() {
		ep.bell.fence()
		ep.bell.tell(quiet)
	}
}

// execute executes wr now if its memory is mapped.
func (ep *endpoint) execute(wr *fabric.WR) (st fabric.Status, out outcome) {
	if !ep.link.keys.CheckLocal(wr) {
		return fabric.StatusLocalProtection, executed
	}
	n := wr.Len()
	if n == 0 { // accesses nothing: no key is checked, as on a device
		return fabric.StatusOK, executed
	}
	x := ep.lookup(wr.RKey, wr.RemoteAddr, n, softlink.RemoteNeed(wr.Op))
	if x == nil {
		if !ep.isUp() {
			return 0, epDown
		}
		return ep.refused()
	}
	if x.mem == 0 {
		return 0, isFar
	}
	ep.link.copies.run(&ep.bell, x, wr, n)
	return fabric.StatusOK, executed
}

// run executes wr, which has been checked and whose n bytes, at least one, lie in the
// mapped region x. What loads does so behind the stores of the requests before it: reads, and
// atomics, of which those that store are fences as well.
// Hot path.
func (c *copies) run(bell *doorbell, x *xlate, wr *fabric.WR, n uint64) {
	if wr.Op == fabric.OpWrite {
		bell.loose = true
	} else {
		bell.settle()
	}
	at := x.mem + (wr.RemoteAddr - x.base)
	if s := &wr.Local[0]; n == 8 && s.Len == 8 && at&7 == 0 {
		switch wr.Op {
		case fabric.OpWrite:
			orderStores() // after the stores of earlier requests
			release8(at, load8(s.Addr))
		case fabric.OpRead:
			store8(s.Addr, word(at).Load())
		default:
			store8(s.Addr, atomic8(wr.Op, at, wr.Compare, wr.Operand))
		}
		return
	}
	switch large := n >= c.from.Load(); {
	case wr.Op == fabric.OpWrite && large:
		putBulk(c.plan.Load(), at, wr.Local, n)
	case wr.Op == fabric.OpWrite:
		put(at, wr.Local, n)
	case large:
		getBulk(c.plan.Load(), wr.Local, at, n)
	default:
		get(wr.Local, at, n)
	}
}

// refused returns the result of a request whose key is not valid. A peer that closes
// withdraws its regions after its endpoint: a late request has lost its peer rather than
// used a wrong key. May take the endpoint down.
func (ep *endpoint) refused() (fabric.Status, outcome) {
	switch ep.drainSocket(); {
	case !ep.isUp():
		return 0, epDown
	case ep.hup:
		return gone(ep), executed
	}
	return fabric.StatusRemoteAccess, executed
}

// lookup returns the peer's region with that key if it contains [addr, addr+n) and has the
// rights in need, else nil. It costs one load of shared memory. May take the endpoint down.
// Hot path.
func (ep *endpoint) lookup(key uint32, addr, n uint64, need fabric.Access) *xlate {
	x := &ep.mem.cache[key%cacheSize]
	if x.key != key || !x.current() || x.mem == 0 && x.seg != 0 {
		if !ep.find(x, key) {
			return nil
		}
	}
	if !x.holds(addr, n, need) {
		return nil
	}
	return x
}

// find reads the table entry of key into x, and processes the peer's announcements of the
// segment that contains the region.
func (ep *endpoint) find(x *xlate, key uint32) bool {
	n, off, ok := ep.mem.read(key)
	if !ok {
		return false
	}
	if n.seg != 0 {
		if ep.mem.segs[n.seg] == nil {
			if ep.drainSocket(); !ep.isUp() {
				return false
			}
			if ep.mem.ask(n.seg, ep.sock.fd) {
				ep.announce(note{typ: msgAgain, seg: n.seg, fd: -1})
			}
		}
		if err := ep.mem.place(&n, off); err != nil {
			ep.corrupt(err)
			return false
		}
	}
	*x = n
	return true
}

// reserve ensures that k more frames fit the peer's ring, or that the peer wakes this side
// when they do. May take the endpoint down.
func (ep *endpoint) reserve(k int) bool {
	if ep.out.fits(k) && !ep.out.starved {
		return true
	}
	ok, err := ep.out.reserve(k)
	if err != nil {
		ep.corrupt(err)
	}
	return ok
}

// far executes wrs[0], which execute has found to be on memory of the peer that is not
// mapped here: writes and reads by process_vm_writev and process_vm_readv where they work
// (cross-memory attach, CMA). more is the number of requests behind it that the same call
// executed. The effects of a call are visible before those of later ones. Bulk path.
func (ep *endpoint) far(wrs []fabric.WR) (st fabric.Status, out outcome, more int) {
	wr := &wrs[0]
	if !ep.cma.works || wr.Op != fabric.OpWrite && wr.Op != fabric.OpRead {
		return 0, needsPeer, 0
	}
	// A process id may be reused after its process has ended. The socket reports that in
	// time; it is checked at most once per millisecond.
	if now := cpu.Ticks(); now-ep.cma.aliveAt > ep.link.houseStep {
		ep.cma.aliveAt = now
		switch ep.drainSocket(); {
		case !ep.isUp():
			return 0, epDown, 0
		case ep.hup:
			return gone(ep), executed, 0
		}
		if st, out = ep.execute(wr); out != isFar { // an announcement may have mapped the region
			ep.bell.fence()
			return st, out, 0
		}
	}
	x := ep.lookup(wr.RKey, wr.RemoteAddr, wr.Len(), softlink.RemoteNeed(wr.Op))
	switch {
	case x == nil && !ep.isUp():
		return 0, epDown, 0
	case x == nil || !ep.cma.borrow(x):
		st, out = ep.refused()
		return st, out, 0
	}
	room := ep.depth - ep.cq.Len() - ep.q.len() // each may leave a completion
	var errno error
	if more = ep.cma.together(wrs, x, room) - 1; more > 0 {
		errno = ep.cma.moveList(wrs[:more+1])
	}
	if more == 0 || errno != nil {
		// A single request, or a list that failed: requests may be repeated, one by one, so
		// that the failure belongs to a known one.
		errno, more = ep.cma.transfer(wr, x), 0
	}
	withdrawn := errno != nil && !x.current()
	ep.cma.giveBack()
	if withdrawn {
		st, out = ep.refused()
		return st, out, 0
	}
	switch errno {
	case nil:
		return fabric.StatusOK, executed, more
	case unix.ESRCH:
		return gone(ep), executed, 0
	case unix.EPERM, unix.ENOSYS, unix.ENOMEM:
		// Refused from now on (or out of memory): writes and reads may be repeated, so the
		// whole request takes the other path.
		ep.cma.works = errno == unix.ENOMEM
		return 0, needsPeer, 0
	default:
		return fabric.StatusRemoteOp, executed, 0
	}
}

// doorbell wakes the peer's owner if it sleeps. It belongs to the owner.
type doorbell struct {
	link   *link
	peer   *ctlHeader // contains the peer's sleep word
	sock   int
	woken  uint64 // value of the peer's sleep word at the last wake message
	failed bool   // the kernel had no memory for the last wake message
	loose  bool   // no fence has followed the last stores
	word   atomic.Uint64
}

// fence orders stores before it ahead of loads after it, atomic or not.
func (d *doorbell) fence() {
	d.loose = false
	d.word.Store(0)
	orderLoads()
}

// settle is fence, if none has followed the last stores.
// Hot path.
func (d *doorbell) settle() {
	if d.loose {
		d.fence()
	}
}

// wake wakes the peer if it sleeps. The caller must have put a full fence between its
// stores and the call (fence, or an atomic store as the last one). Ordering partner:
// link.Arm.
func (d *doorbell) wake() { d.tell(false) }

// tell is wake if the peer is to see something soon. Otherwise, with quiet, it wakes the peer only if
// that watches its memory.
// Hot path.
func (d *doorbell) tell(quiet bool) {
	bits := uint64(sleeping)
	if quiet {
		bits |= watching
	}
	if s := d.peer.sleep.Load(); s&bits == bits {
		d.ring(s)
	}
}

// ring sends the wake message, once for each sleep, whose number is s. A full socket is as
// good, because the peer then has something to read. If the kernel has no memory, it is
// sent again soon.
func (d *doorbell) ring(s uint64) {
	if s == d.woken {
		return
	}
	err := d.link.sendWake(d.sock)
	if d.failed = err == unix.ENOBUFS || err == unix.ENOMEM; !d.failed {
		d.woken = s
	}
}

// sendWake sends the wake message.
func sendWake(sock int) error {
	for {
		if err := unix.Send(sock, wakeMessage, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL); err != unix.EINTR {
			return err
		}
	}
}

package shm

import (
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
	"github.com/seed33544411/rma/internal/cpu"
)

// far carries out wrs[0], which execute has found to be on memory of the peer that is not
// mapped here: writes and reads by process_vm_writev and process_vm_readv where they
// work (cross-memory attach, CMA). more of those behind it went the same way in the same
// call. What a call has done is seen before what is done after it. Bulk path.
func (ep *endpoint) far(wrs []fabric.WR) (st fabric.Status, out outcome, more int) {
	wr := &wrs[0]
	if !ep.cma || wr.Op != fabric.OpWrite && wr.Op != fabric.OpRead {
		return 0, needsPeer, 0
	}
	// A process id outlives its process only until the kernel gives it to
	// another one. The socket tells in time; it is looked at once a
	// millisecond at most.
	if now := cpu.Ticks(); now-ep.aliveAt > ep.link.houseStep {
		ep.aliveAt = now
		ep.drainSocket()
		if ep.hup {
			return fabric.StatusPeerGone, executed, 0
		}
		if !ep.isUp() {
			return 0, epDown, 0
		}
		if st, out, _ = ep.execute(wr); out != isFar { // what came may have moved the region
			ep.fullFence()
			return st, out, 0
		}
	}
	x := ep.lookup(wr.RKey, wr.RemoteAddr, wr.Len(), softlink.RemoteNeed(wr.Op))
	switch {
	case x == nil && !ep.isUp():
		return 0, epDown, 0
	case x == nil || !ep.borrow(x):
		return ep.refused(), executed, 0
	}
	var errno error
	if more = ep.together(wrs, x) - 1; more > 0 {
		errno = ep.moveList(wrs[:more+1])
	}
	if more == 0 || errno != nil {
		// One alone; or whatever failed: requests may be repeated, one after the other,
		// so that it is known whose failure it is.
		errno, more = ep.transfer(wr, x), 0
	}
	withdrawn := errno != nil && !x.current()
	ep.peerHdr.hazard.Store(0)
	if withdrawn {
		return ep.refused(), executed, 0
	}
	switch errno {
	case nil:
		return fabric.StatusOK, executed, more
	case unix.ESRCH:
		return fabric.StatusPeerGone, executed, 0
	case unix.EPERM, unix.ENOSYS, unix.ENOMEM:
		// Refused from now on (or for want of memory): writes and reads may
		// be repeated, so the whole request goes the other way.
		ep.cma = errno == unix.ENOMEM
		return 0, needsPeer, 0
	default:
		return fabric.StatusRemoteOp, executed, 0
	}
}

// borrow announces that the region of x is in use by system calls and makes sure that
// it is still valid. Ordering partner: link.inUse; see hazard.
func (ep *endpoint) borrow(x *xlate) bool {
	ep.peerHdr.hazard.Store(x.key)
	if x.current() {
		return true
	}
	ep.peerHdr.hazard.Store(0)
	return false
}

// stillLent is asked between two calls of one borrow: nil if the region is still valid and
// the peer still there, which its process id does not tell.
func (ep *endpoint) stillLent(x *xlate) error {
	if !x.current() || hungUp(ep.sock) {
		return unix.ESRCH
	}
	return nil
}

// transfer moves the bytes of wr, to or from the region of x. The last aligned word of a write becomes visible
// last: it is a piece of its own on the remote side, and the kernel copies pieces one
// after the other. Where the processor keeps stores in order that takes one call,
// elsewhere a second one.
func (ep *endpoint) transfer(wr *fabric.WR, x *xlate) error {
	var c cursor
	var tail uint64
	n := wr.Len()
	if wr.Op == fabric.OpWrite && n > 8 && endsOnWord(wr.RemoteAddr, n) {
		tail = 8
	}
	if tail != 0 && !storesInOrder {
		if err := ep.moveFar(wr, x, &c, wr.RemoteAddr, n-8, 0); err != nil {
			return err
		}
		if err := ep.stillLent(x); err != nil {
			return err
		}
		return ep.moveFar(wr, x, &c, wr.RemoteAddr+n-8, 8, 0)
	}
	return ep.moveFar(wr, x, &c, wr.RemoteAddr, n, tail)
}

// maxCall bounds one system call: what a region that closes waits for, below a millisecond.
// More moves no faster; half of it costs a tenth more processor time, a quarter two fifths.
const maxCall = 4 << 20

// moveFar moves n bytes between the pieces from c on and the peer's memory at
// remote, the last tail of them (fewer than n) as a piece of their own, in as many
// calls as it takes. Between two of them it looks whether it still may.
func (ep *endpoint) moveFar(wr *fabric.WR, x *xlate, c *cursor, remote, n, tail uint64) error {
	l := ep.link
	for first := true; n > 0; first = false {
		if !first {
			if err := ep.stillLent(x); err != nil {
				return err
			}
		}
		k, size := c.iovecs(l.liov[:], wr.Local, min(n, maxCall))
		r := splitTail((*[2]unix.RemoteIovec)(l.riov[:2]), remote, size, n, tail)
		got, err := ep.callFar(wr.Op, k, r)
		switch {
		case err != nil:
			return err
		case got == 0 || got > size:
			return unix.EFAULT
		}
		c.advance(wr.Local, got)
		remote += got
		n -= got
	}
	return nil
}

// callFar moves bytes between the first k of the link's local pieces and the first r of
// its remote ones in the peer's memory, and returns how many it moved.
func (ep *endpoint) callFar(op fabric.Op, k, r int) (uint64, error) {
	call := unix.ProcessVMReadv
	if op == fabric.OpWrite {
		call = unix.ProcessVMWritev
	}
	for {
		got, err := call(ep.pid, ep.link.liov[:k], ep.link.riov[:r], 0)
		if err != unix.EINTR {
			return uint64(max(got, 0)), err
		}
	}
}

// splitTail names the next size of n bytes at remote in iov, of which the last tail
// make a piece of their own as far as they are among them, and returns how many pieces
// that is. What a call left of the tail is one piece.
func splitTail(iov *[2]unix.RemoteIovec, remote, size, n, tail uint64) int {
	head := size
	if n > tail {
		head = min(size, n-tail)
	}
	iov[0] = unix.RemoteIovec{Base: uintptr(remote), Len: int(head)}
	if head == size {
		return 1
	}
	iov[1] = unix.RemoteIovec{Base: uintptr(remote + head), Len: int(size - head)}
	return 2
}

// iovecs names the next up to n bytes of the pieces in iov, and returns how
// many elements and bytes that is. The cursor stays.
func (c *cursor) iovecs(iov []unix.Iovec, sgl []fabric.SGE, n uint64) (k int, size uint64) {
	off := c.off
	for i := c.i; i < len(sgl) && k < len(iov) && size < n; i++ {
		m := min(uint64(sgl[i].Len-off), n-size)
		if m > 0 {
			setIovec(&iov[k], sgl[i].Addr+uint64(off), int(m))
			k++
			size += m
		}
		off = 0
	}
	return k, size
}

// advance moves the cursor n bytes on.
func (c *cursor) advance(sgl []fabric.SGE, n uint64) {
	for n > 0 && c.i < len(sgl) {
		s := &sgl[c.i]
		k := min(uint64(s.Len-c.off), n)
		c.skip(uint32(k), s.Len)
		n -= k
	}
}

package shm

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
	"github.com/seed33544411/rma/internal/offheap"
)

// cma accesses private memory of the peer by process_vm_writev and process_vm_readv
// (cross-memory attach). It belongs to the owner.
type cma struct {
	link    *link
	works   bool
	why     string // the reason why it does not work; constant
	pid     int
	peer    *chanHeader // contains the hazard word
	sock    int
	aliveAt int64 // Ticks of the last check of the socket by a call
}

// vectors holds the arguments of one call.
type vectors struct {
	local  [maxIov]unix.Iovec
	remote [maxIov]unix.RemoteIovec
}

// probe tries process_vm_readv and process_vm_writev on the peer's channel, which is mapped
// here as well, so that both can be seen to access the right memory. It returns the reason
// why they cannot be used, "" if they can.
func (c *cma) probe(nonceAddr uint64) (reason string) {
	if c.pid <= 0 {
		return "the peer lives in a process-id namespace that is not seen here"
	}
	var got, put [2]uint64
	var iov [1]unix.Iovec
	buf, err := offheap.Alloc(16, offheap.Staging)
	if err != nil {
		return err.Error()
	}
	defer offheap.Free(buf, offheap.Staging)
	// As in borrow: the memory must not be released before the probe has ended.
	c.peer.hazard.Store(probing)
	defer c.peer.hazard.Store(0)
	if c.peer.magic.Load() != chanMagic {
		return "the peer is closing"
	}
	setIovec(&iov[0], fabric.Addr(buf), 16)
	remote := []unix.RemoteIovec{{Base: uintptr(nonceAddr), Len: 16}}
	if n, err := unix.ProcessVMReadv(c.pid, iov[:], remote, 0); n != 16 || err != nil {
		return refusalCMA("process_vm_readv", n, err)
	}
	for i := range got {
		got[i] = binary.NativeEndian.Uint64(buf[8*i:])
		if got[i] != c.peer.nonce[i].Load() {
			return "process_vm_readv reads another process: process ids differ between the two"
		}
	}
	_, _ = rand.Read(buf[:8])
	put[0] = binary.NativeEndian.Uint64(buf)
	setIovec(&iov[0], fabric.Addr(buf), 8)
	remote[0] = unix.RemoteIovec{Base: uintptr(nonceAddr - nonceOff + probeOff), Len: 8}
	n, err := unix.ProcessVMWritev(c.pid, iov[:], remote, 0)
	switch {
	case n != 8 || err != nil:
		return refusalCMA("process_vm_writev", n, err)
	case c.peer.probe.Load() != put[0]:
		return "process_vm_writev does not reach the peer's memory"
	}
	return ""
}

// refusalCMA explains why a process_vm call was refused.
func refusalCMA(call string, n int, err error) string {
	switch err {
	case nil:
		return fmt.Sprintf("%s moves %d bytes only", call, n)
	case unix.EPERM:
		return call + ": not permitted: ptrace restrictions (kernel.yama.ptrace_scope, another user namespace, PR_SET_DUMPABLE)"
	case unix.ENOSYS:
		return call + ": not in this kernel, or forbidden by seccomp"
	}
	return call + ": " + err.Error()
}

// borrow announces that system calls use the region of x, and checks that it is still
// valid. Ordering partner: link.inUse; see hazard.
func (c *cma) borrow(x *xlate) bool {
	c.peer.hazard.Store(x.key)
	if x.current() {
		return true
	}
	c.peer.hazard.Store(0)
	return false
}

// giveBack ends the use that borrow announced.
func (c *cma) giveBack() { c.peer.hazard.Store(0) }

// stillLent is called between two system calls of one borrow. It returns nil if the region
// is still valid and the peer is alive, which its process id does not prove.
func (c *cma) stillLent(x *xlate) error {
	if !x.current() || hungUp(c.sock) {
		return unix.ESRCH
	}
	return nil
}

// transfer moves the bytes of wr to or from the region of x. The last aligned word of a
// write becomes visible last: it is a separate piece on the remote side, and the kernel
// copies the pieces in order. On processors that keep stores in order this takes one call,
// on others two.
func (c *cma) transfer(wr *fabric.WR, x *xlate) error {
	var at cursor
	var tail uint64
	n := wr.Len()
	if wr.Op == fabric.OpWrite && n > 8 && endsOnWord(wr.RemoteAddr, n) {
		tail = 8
	}
	if tail != 0 && !storesInOrder {
		if err := c.move(wr, x, &at, wr.RemoteAddr, n-8, 0); err != nil {
			return err
		}
		if err := c.stillLent(x); err != nil {
			return err
		}
		return c.move(wr, x, &at, wr.RemoteAddr+n-8, 8, 0)
	}
	return c.move(wr, x, &at, wr.RemoteAddr, n, tail)
}

// maxCall bounds the bytes of one system call, and thereby the wait of a closing region to
// less than a millisecond. More is not faster; half of it costs a tenth more processor
// time, a quarter two fifths.
const maxCall = 4 << 20

// move moves n bytes between the pieces from at on and the peer's memory at remote, the
// last tail of them (fewer than n) as a separate piece, in as many calls as necessary.
// Between two calls it checks that it may continue.
func (c *cma) move(wr *fabric.WR, x *xlate, at *cursor, remote, n, tail uint64) error {
	v := &c.link.vectors
	for first := true; n > 0; first = false {
		if !first {
			if err := c.stillLent(x); err != nil {
				return err
			}
		}
		k, size := at.iovecs(v.local[:], wr.Local, min(n, maxCall))
		r := splitTail((*[2]unix.RemoteIovec)(v.remote[:2]), remote, size, n, tail)
		got, err := c.call(wr.Op, k, r)
		switch {
		case err != nil:
			return err
		case got == 0 || got > size:
			return unix.EFAULT
		}
		at.advance(wr.Local, got)
		remote += got
		n -= got
	}
	return nil
}

// call moves bytes between the first k of the link's local pieces and the first r of its
// remote ones in the peer's memory, and returns how many it moved.
func (c *cma) call(op fabric.Op, k, r int) (uint64, error) {
	v := &c.link.vectors
	call := unix.ProcessVMReadv
	if op == fabric.OpWrite {
		call = unix.ProcessVMWritev
	}
	for {
		got, err := call(c.pid, v.local[:k], v.remote[:r], 0)
		if err != unix.EINTR {
			return uint64(max(got, 0)), err
		}
	}
}

// splitTail sets iov to the next size of n bytes at remote. Those of the last tail bytes
// that are among them become a separate piece. It returns the number of pieces. A tail that
// an earlier call moved in part is one piece.
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

// iovecs sets iov to the next up to n bytes of the pieces, and returns the number of
// elements and bytes. The cursor does not move.
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

// advance moves the cursor by n bytes.
func (c *cursor) advance(sgl []fabric.SGE, n uint64) {
	for n > 0 && c.i < len(sgl) {
		s := &sgl[c.i]
		k := min(uint64(s.Len-c.off), n)
		c.skip(uint32(k), s.Len)
		n -= k
	}
}

// A process_vm call costs about a microsecond before it moves any data: it finds the
// process, takes a reference to its address space, and pins pages. Requests of one list in
// the same direction share a call.

// maxTogether bounds the bytes of requests that share a call: beyond it the cost of the
// call is small compared with the copy, and the first request would complete later because
// of the last.
const maxTogether = 64 << 10

// together returns how many requests from the first on one call can execute: they have one
// kind, are on the region x, which is borrowed, are valid as far as is known here, fit the
// pieces of a call, and are at most room. The first has been checked.
func (c *cma) together(wrs []fabric.WR, x *xlate, room int) int {
	first := &wrs[0]
	if !storesInOrder && first.Op == fabric.OpWrite {
		return 1 // the last words of writes need separate calls
	}
	need := softlink.RemoteNeed(first.Op)
	local, remote, bytes := 0, 0, uint64(0)
	k := 0
	for ; k < len(wrs) && k < room; k++ {
		wr := &wrs[k]
		n := wr.Len()
		local += len(wr.Local)
		remote += 2
		bytes += n
		if local > maxIov || remote > maxIov || bytes > maxTogether {
			break
		}
		if k == 0 {
			if wr.Flags&fabric.FlagNotify != 0 {
				return 1
			}
			continue
		}
		if wr.Op != first.Op || wr.RKey != first.RKey || wr.Flags&fabric.FlagNotify != 0 || n == 0 ||
			softlink.CheckShape(wr, &c.link.caps) != "" || !c.link.keys.CheckLocal(wr) ||
			!x.holds(wr.RemoteAddr, n, need) {
			break
		}
	}
	return max(k, 1)
}

// moveList moves all bytes of the requests, which are of one kind, in one call, piece after
// piece; the last word of each write is a separate piece. After an error or a short result
// it is unknown which bytes were moved.
func (c *cma) moveList(wrs []fabric.WR) error {
	v := &c.link.vectors
	nl, nr, bytes := 0, 0, uint64(0)
	for i := range wrs {
		wr := &wrs[i]
		var at cursor
		n := wr.Len()
		k, _ := at.iovecs(v.local[nl:], wr.Local, n)
		tail := uint64(0)
		if wr.Op == fabric.OpWrite && n > 8 && endsOnWord(wr.RemoteAddr, n) {
			tail = 8
		}
		var two [2]unix.RemoteIovec
		nr += copy(v.remote[nr:], two[:splitTail(&two, wr.RemoteAddr, n, n, tail)])
		nl += k
		bytes += n
	}
	got, err := c.call(wrs[0].Op, nl, nr)
	if err == nil && got != bytes {
		err = unix.EFAULT
	}
	return err
}

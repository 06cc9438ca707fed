package shm

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
)

// attachment implements fabric.Attachment: by loads from and stores to segments of the peer that are mapped here,
// and by process_vm_readv and process_vm_writev for its other memory.
type attachment struct {
	windows atomic.Pointer[[]window] // set by the endpoint's owner
	ctl     control                  // the peer's, in which the windows' table entries are
	copies  *copies
	closed  atomic.Bool

	pid     int
	pidfd   int   // tells when the process has ended, from when on another may have its id
	aliveAt int64 // Ticks when it was last known to live
	step    int64 // Ticks after which that is checked again
	local   [1]unix.Iovec
	remote  [1]unix.RemoteIovec
}

// Read implements fabric.Attachment. Bulk path.
func (a *attachment) Read(dst []byte, addr uint64) error {
	if err := checkAddr("read", a.pid, dst, addr); err != nil {
		return err
	}
	if src, seg := a.mapped(addr, uint64(len(dst))); seg != nil {
		a.copies.plan.Load().Copy(dst, src)
		return seg.release()
	}
	return a.call("read", unix.ProcessVMReadv, dst, addr)
}

// Write implements fabric.Attachment. Bulk path.
func (a *attachment) Write(src []byte, addr uint64) error {
	if err := checkAddr("write", a.pid, src, addr); err != nil {
		return err
	}
	if dst, seg := a.mapped(addr, uint64(len(src))); seg != nil {
		a.copies.plan.Load().Copy(dst, src)
		return seg.release()
	}
	return a.call("write", unix.ProcessVMWritev, src, addr)
}

// checkAddr returns an error if no process has memory as long as mem at addr.
func checkAddr(op string, pid int, mem []byte, addr uint64) error {
	if n := uint64(len(mem)); addr > math.MaxInt64 || n > math.MaxInt64-addr {
		return fmt.Errorf("shm: %s %d bytes at %#x of process %d: %w", op, n, addr, pid, unix.EFAULT)
	}
	return nil
}

// call copies between mem and memory of the process by calls of the system.
func (a *attachment) call(op string, move func(int, []unix.Iovec, []unix.RemoteIovec, uint) (int, error), mem []byte, addr uint64) error {
	for len(mem) > 0 {
		size := min(len(mem), maxCall)
		setIovec(&a.local[0], fabric.Addr(mem), size)
		a.remote[0] = unix.RemoteIovec{Base: uintptr(addr), Len: size}
		n, err := move(a.pid, a.local[:], a.remote[:], 0)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ESRCH:
			return fmt.Errorf("shm: %s memory of process %d: %w", op, a.pid, fabric.ErrPeerGone)
		case err == nil && n <= 0:
			err = unix.EFAULT
			fallthrough
		case err != nil:
			return fmt.Errorf("shm: %s %d bytes at %#x of process %d: %w", op, size, addr, a.pid, err)
		}
		mem, addr = mem[n:], addr+uint64(n)
	}
	if now := cpu.Ticks(); now-a.aliveAt > a.step {
		if a.Ended() {
			return fmt.Errorf("shm: %s memory of process %d: %w", op, a.pid, fabric.ErrPeerGone)
		}
		a.aliveAt = now
	}
	return nil
}

// Ended implements fabric.Attachment: what was read under the process's id may be another's then.
func (a *attachment) Ended() bool {
	fds := [1]unix.PollFd{{Fd: int32(a.pidfd), Events: unix.POLLIN}}
	for {
		if n, err := unix.Poll(fds[:], 0); err != unix.EINTR {
			return n != 0 || err != nil
		}
	}
}

// window is a segment of the peer, with its address there. It holds as long as the table entry, of
// a region that begins with the segment, does not change: before the peer reuses the address, it
// withdraws the region.
type window struct {
	xlate
	mapped *peerSegment
}

// show tells the attachments which segments are mapped.
func (m *peerMemory) show() {
	m.attached = slices.DeleteFunc(m.attached, func(a *attachment) bool { return a.closed.Load() })
	if len(m.attached) == 0 {
		return
	}
	of := map[uint32]window{}
	entries := m.attached[0].ctl.entries()
	for i := range entries {
		key := entries[i].key.Load()
		seg := m.segs[entries[i].seg.Load()]
		if key == 0 || seg == nil {
			continue
		}
		x, off, ok, _ := entries[i].copy(key)
		if ok && off == 0 && x.size <= uint64(len(seg.mem)) && m.segs[x.seg] == seg && x.size > of[x.seg].size {
			of[x.seg] = window{x, seg}
		}
	}
	all := slices.SortedFunc(maps.Values(of), func(a, b window) int { return cmp.Compare(a.base, b.base) })
	for _, a := range m.attached {
		a.windows.Store(&all)
	}
}

// mapped returns n bytes at an address of the peer, if they are mapped here; the caller releases the
// segment.
func (a *attachment) mapped(addr, n uint64) (mem []byte, seg *peerSegment) {
	all := *a.windows.Load()
	i, found := slices.BinarySearchFunc(all, addr, func(w window, addr uint64) int { return cmp.Compare(w.base, addr) })
	if !found {
		i--
	}
	if i < 0 || n == 0 {
		return nil, nil
	}
	w := &all[i]
	if off := addr - w.base; off > w.size || n > w.size-off || !w.mapped.hold() {
		return nil, nil
	} else if w.current() {
		return w.mapped.mem[off : off+n], w.mapped
	}
	_ = w.mapped.release()
	return nil, nil
}

// Close implements fabric.Attachment. Idempotent.
func (a *attachment) Close() error {
	if a.closed.Swap(true) {
		return nil
	}
	return errors.Join(a.ctl.release(), unix.Close(a.pidfd))
}

package shm

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
)

// attachment implements fabric.Attachment by process_vm_readv.
type attachment struct {
	pid     int
	pidfd   int   // tells when the process has ended, from when on another may have its id
	aliveAt int64 // Ticks when it was last known to live
	step    int64 // Ticks after which that is checked again
	local   [1]unix.Iovec
	remote  [1]unix.RemoteIovec
}

// Read implements fabric.Attachment. Bulk path.
func (a *attachment) Read(dst []byte, addr uint64) error {
	if n := uint64(len(dst)); addr > math.MaxInt64 || n > math.MaxInt64-addr { // no process has memory there
		return fmt.Errorf("shm: read %d bytes at %#x of process %d: %w", n, addr, a.pid, unix.EFAULT)
	}
	for len(dst) > 0 {
		size := min(len(dst), maxCall)
		setIovec(&a.local[0], fabric.Addr(dst), size)
		a.remote[0] = unix.RemoteIovec{Base: uintptr(addr), Len: size}
		n, err := unix.ProcessVMReadv(a.pid, a.local[:], a.remote[:], 0)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ESRCH:
			return fmt.Errorf("shm: read memory of process %d: %w", a.pid, fabric.ErrPeerGone)
		case err == nil && n <= 0:
			err = unix.EFAULT
			fallthrough
		case err != nil:
			return fmt.Errorf("shm: read %d bytes at %#x of process %d: %w", size, addr, a.pid, err)
		}
		dst, addr = dst[n:], addr+uint64(n)
	}
	if now := cpu.Ticks(); now-a.aliveAt > a.step {
		if a.ended() {
			return fmt.Errorf("shm: read memory of process %d: %w", a.pid, fabric.ErrPeerGone)
		}
		a.aliveAt = now
	}
	return nil
}

// ended reports whether the process has ended: what was read under its id may be another's.
func (a *attachment) ended() bool {
	fds := [1]unix.PollFd{{Fd: int32(a.pidfd), Events: unix.POLLIN}}
	for {
		if n, err := unix.Poll(fds[:], 0); err != unix.EINTR {
			return n != 0 || err != nil
		}
	}
}

// Close implements fabric.Attachment. Idempotent.
func (a *attachment) Close() error {
	fd := a.pidfd
	if a.pidfd = -1; fd < 0 {
		return nil
	}
	return unix.Close(fd)
}

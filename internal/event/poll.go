//go:build unix

package event

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Wait waits until fd is readable (or broken, which reading it reports) or d is over, which
// systems other than Linux round up to milliseconds, and reports whether fd is readable. A
// signal may end it early.
func Wait(fd int, d time.Duration) (ready bool, err error) {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := poll(fds[:], d)
	if errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return n > 0, err
}

// pipe is an event of unixes without eventfd: it is set while the pipe holds unread bytes.
type pipe struct{ r, w int }

func newPipe() (pipe, error) {
	var p [2]int
	syscall.ForkLock.RLock() // no child may inherit the descriptors: not all systems have pipe2
	err := unix.Pipe(p[:])
	if err == nil {
		unix.CloseOnExec(p[0])
		unix.CloseOnExec(p[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return pipe{-1, -1}, fmt.Errorf("pipe: %w", err)
	}
	e := pipe{p[0], p[1]}
	if err := errors.Join(unix.SetNonblock(e.r, true), unix.SetNonblock(e.w, true)); err != nil {
		return pipe{-1, -1}, errors.Join(fmt.Errorf("pipe: %w", err), e.Close())
	}
	return e, nil
}

func (e pipe) FD() int { return e.r }

func (e pipe) Set() {
	one := [1]byte{1}
	_, _ = unix.Write(e.w, one[:]) // EAGAIN: full, so it is set
}

func (e pipe) Clear() {
	var b [512]byte
	for {
		if n, err := unix.Read(e.r, b[:]); n < len(b) && err != unix.EINTR {
			return // EAGAIN, or all that was there
		}
	}
}

func (e pipe) Close() error { return errors.Join(unix.Close(e.r), unix.Close(e.w)) }

// Set waits for the descriptors given to NewSet. They are few, so passing all of them to the
// kernel at each wait has a negligible cost.
type Set struct {
	fds []unix.PollFd
	raw raw
}

// NewSet returns a set of descriptors that stay open until it is closed.
func NewSet(fds ...int) (*Set, error) {
	s := &Set{}
	for _, fd := range fds {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			return nil, fmt.Errorf("watch descriptor %d: %w", fd, err)
		}
		s.fds = append(s.fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return s, nil
}

// Wait returns when a descriptor is readable, which it reports, a signal arrived, or d is over; systems other
// than Linux round d up to milliseconds.
//
// It is a plain system call, which blocks a thread, and not a wait in the runtime's poller: the
// runtime polls that only every 10 ms if all processors of the process have goroutines to
// run (measured with GOMAXPROCS=1 beside a goroutine that never blocks: 17 ms a round trip,
// against 0.1-0.35 ms).
func (s *Set) Wait(d time.Duration) (ready bool, err error) {
	n, err := poll(s.fds, d)
	if errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return n > 0, err
}

// Readable reports whether the descriptor that was argument i of NewSet was readable, or broken, when the
// last Wait or WaitRaw found one that was.
func (s *Set) Readable(i int) bool { return s.fds[i].Revents != 0 }

// Close releases the set; the descriptors stay open.
func (s *Set) Close() error { return nil }

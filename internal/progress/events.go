package progress

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
)

// sleepSlice bounds one wait. Nothing depends on it: should a link ever fail to
// signal an event, that costs a peer a second and not for ever.
const sleepSlice = time.Second

// events is an epoll descriptor over those of the links and one to wake it by.
//
// The wait is a plain epoll_wait, which holds a thread, and not one in the
// runtime's poller: that is looked at every 10 ms only when all processors of
// the process have something to run (measured with GOMAXPROCS=1 beside a
// goroutine that never blocks: 17 ms a round trip, against 0.1-0.35 ms).
type events struct {
	epFD, wakeFD int
	found        [8]unix.EpollEvent

	once     sync.Once
	closeErr error
}

func newEvents(links []fabric.Link) (*events, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(ep)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	ev := &events{epFD: ep, wakeFD: wake}
	fds := []int{wake}
	for _, l := range links {
		fds = append(fds, l.FD())
	}
	for _, fd := range fds {
		if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
			_ = ev.close()
			return nil, fmt.Errorf("watch descriptor %d: %w", fd, err)
		}
	}
	return ev, nil
}

// wait returns when a descriptor is readable, or after d, rounded up to
// milliseconds; at the latest, and where d is 0, after sleepSlice. For one
// goroutine.
func (ev *events) wait(d time.Duration) error {
	if d <= 0 || d > sleepSlice {
		d = sleepSlice
	}
	_, err := unix.EpollWait(ev.epFD, ev.found[:], int((d+time.Millisecond-1)/time.Millisecond))
	if err != nil && !errors.Is(err, unix.EINTR) {
		return err
	}
	var b [8]byte
	if _, err = unix.Read(ev.wakeFD, b[:]); err != nil && !errors.Is(err, unix.EAGAIN) {
		return err
	}
	return nil
}

// wake makes wait return, now or the next time.
func (ev *events) wake() {
	one := [8]byte{1} // any number but 0, in any byte order
	_, _ = unix.Write(ev.wakeFD, one[:])
}

func (ev *events) close() error {
	ev.once.Do(func() { ev.closeErr = errors.Join(unix.Close(ev.epFD), unix.Close(ev.wakeFD)) })
	return ev.closeErr
}

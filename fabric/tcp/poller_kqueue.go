//go:build darwin || freebsd

package tcp

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// poller knows which sockets are ready. For the link's owner.
type poller struct {
	fd     int // readable if any of them is
	found  [64]unix.Kevent_t
	change [1]unix.Kevent_t
}

// open opens it; it watches the descriptor wake as well.
func (p *poller) open(wake int) (err error) {
	if p.fd, err = unix.Kqueue(); err != nil {
		return fmt.Errorf("kqueue: %w", err)
	}
	unix.CloseOnExec(p.fd)
	if err = p.set(wake, unix.EVFILT_READ, unix.EV_ADD); err != nil {
		_ = unix.Close(p.fd)
		return fmt.Errorf("kqueue: %w", err)
	}
	return nil
}

func (p *poller) close() error { return unix.Close(p.fd) }

func (p *poller) set(fd, filter, flags int) error {
	unix.SetKevent(&p.change[0], fd, filter, flags)
	_, err := unix.Kevent(p.fd, p.change[:], nil, nil)
	return err
}

// add watches e's socket for data, until it is closed.
func (p *poller) add(e *endpoint) error { return p.set(e.fd, unix.EVFILT_READ, unix.EV_ADD) }

// out watches e's socket for room, or no longer.
func (p *poller) out(e *endpoint, on bool) {
	flags := unix.EV_DELETE
	if on {
		flags = unix.EV_ADD
	}
	_ = p.set(e.fd, unix.EVFILT_WRITE, flags)
}

// ready asks, without waiting, how many sockets are ready. Class: short.
func (p *poller) ready() int {
	var now unix.Timespec
	n, err := unix.Kevent(p.fd, nil, p.found[:], &now)
	if err != nil {
		return 0 // EINTR
	}
	return n
}

// at returns the endpoint of ready socket i, nil if it is none: the wake-up
// descriptor, or one closed since. A descriptor that another endpoint got in
// between does no harm: that one is looked at in vain.
func (p *poller) at(i int, tab []*endpoint) *endpoint {
	fd := int(p.found[i].Ident)
	for _, e := range tab {
		if e != nil && e.fd == fd {
			return e
		}
	}
	return nil
}

//go:build darwin || freebsd

package tcp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// poller reports which sockets are ready. It belongs to the link's owner.
type poller struct {
	fd     int // readable if any of them is
	found  [64]unix.Kevent_t
	change [1]unix.Kevent_t
	seats  map[int]seat // by descriptor; also of closed ones, until the descriptors are reused
}

// open opens the poller, which also watches the descriptor wake.
func (p *poller) open(wake int) (err error) {
	if p.fd, err = unix.Kqueue(); err != nil {
		return fmt.Errorf("kqueue: %w", err)
	}
	unix.CloseOnExec(p.fd)
	p.seats = map[int]seat{}
	if err = p.filter(wake, unix.EVFILT_READ, unix.EV_ADD); err != nil {
		_ = unix.Close(p.fd)
		return fmt.Errorf("kqueue: %w", err)
	}
	return nil
}

func (p *poller) close() error { return unix.Close(p.fd) }

func (p *poller) filter(fd, filter, flags int) error {
	unix.SetKevent(&p.change[0], fd, filter, flags)
	_, err := unix.Kevent(p.fd, p.change[:], nil, nil)
	return err
}

// set changes the events that a socket is watched for from have to want.
func (p *poller) set(at seat, fd int, have, want watch) (err error) {
	p.seats[fd] = at
	for _, f := range [...]struct {
		w      watch
		filter int
	}{{watchIn, unix.EVFILT_READ}, {watchOut, unix.EVFILT_WRITE}} {
		if (want^have)&f.w == 0 {
			continue
		}
		flags := unix.EV_DELETE
		if want&f.w != 0 {
			flags = unix.EV_ADD
		}
		err = errors.Join(err, p.filter(fd, f.filter, flags))
	}
	return err
}

// ready returns the number of ready sockets, without waiting.
// Hot path.
func (p *poller) ready() int {
	var now unix.Timespec
	n, err := unix.Kevent(p.fd, nil, p.found[:], &now)
	if err != nil {
		return 0 // EINTR
	}
	return n
}

// at returns the place of the endpoint of ready socket i, a negative one for the wake-up
// descriptor.
func (p *poller) at(i int) seat {
	if at, ok := p.seats[int(p.found[i].Ident)]; ok {
		return at
	}
	return seat{idx: -1}
}

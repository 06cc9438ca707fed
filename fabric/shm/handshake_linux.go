package shm

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
)

// helloWait bounds how long a caller at the listener may take to send its hello before the
// next one is accepted.
const helloWait = 2 * time.Second

// handshake connects an endpoint: it finds the peer by its address and exchanges hellos.
// Connect uses it; Close of the endpoint ends it by closing its sockets.
type handshake struct {
	addr     address
	listener int // -1 if closed
	closing  atomic.Bool
	pid      int            // the peer's, once found
	use      func(sock int) // sets the endpoint's socket; -1 clears it
}

// listen opens the listener, to which the peer may connect from now on.
func (s *handshake) listen(host [16]byte) (err error) {
	s.addr.host = host
	_, _ = rand.Read(s.addr.name[:]) // never fails
	_, _ = rand.Read(s.addr.token[:])
	if s.listener, err = unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return fmt.Errorf("shm: socket: %w", err)
	}
	if err = unix.Bind(s.listener, socketAddr(s.addr.name)); err != nil {
		return fmt.Errorf("shm: bind: %w", err)
	}
	if err = unix.Listen(s.listener, 16); err != nil {
		return fmt.Errorf("shm: listen: %w", err)
	}
	return nil
}

// close closes the listener. Idempotent.
func (s *handshake) close() {
	if s.listener >= 0 {
		_ = unix.Close(s.listener)
		s.listener = -1
	}
}

// meet finds the peer at a. The side with the larger token dials the other's listener. Both
// then send hello; neither waits for more than the other's.
func (s *handshake) meet(ctx context.Context, a *address, say func(sock int) error) (hello, []int, error) {
	if bytes.Compare(s.addr.token[:], a.token[:]) > 0 {
		return s.dial(ctx, a, say)
	}
	return s.accept(ctx, a, say)
}

// dial connects to the peer's listener and exchanges hellos. It repeats this if the peer
// has not read its hello because this process was not scheduled for helloWait.
func (s *handshake) dial(ctx context.Context, a *address, say func(int) error) (h hello, fds []int, err error) {
	for {
		var sock int
		sock, h, fds, err = s.dialOnce(ctx, a, say)
		if !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
			return h, fds, err
		}
		s.use(-1)
		_ = unix.Close(sock)
		if err := s.wait(ctx, nil); err != nil {
			return h, nil, err
		}
	}
}

func (s *handshake) dialOnce(ctx context.Context, a *address, say func(int) error) (sock int, h hello, fds []int, err error) {
	if sock, err = unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return sock, h, nil, fmt.Errorf("socket: %w", err)
	}
	s.use(sock)
	for {
		err = unix.Connect(sock, socketAddr(a.name))
		if err == nil {
			break
		}
		if err == unix.EAGAIN || err == unix.EINTR { // its backlog is full
			if err = s.wait(ctx, nil); err == nil {
				continue
			}
			return sock, h, nil, err
		}
		return sock, h, nil, fmt.Errorf("%w: no listener at the address (closed, or another network namespace): %w", fabric.ErrBadAddress, err)
	}
	if s.pid, err = checkUser(sock); err != nil {
		return sock, h, nil, err
	}
	if err = say(sock); err != nil {
		return sock, h, nil, fmt.Errorf("hello: %w", err)
	}
	h, fds, err = s.hearHello(ctx, sock, a)
	return sock, h, fds, err
}

// accept waits for the peer at the listener and exchanges hellos. Other callers are
// rejected.
func (s *handshake) accept(ctx context.Context, a *address, say func(int) error) (h hello, fds []int, err error) {
	for {
		sock, _, err := unix.Accept4(s.listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if err == unix.EAGAIN || err == unix.EINTR || err == unix.ECONNABORTED {
			if err = s.wait(ctx, []unix.PollFd{{Fd: int32(s.listener), Events: unix.POLLIN}}); err == nil {
				continue
			}
		}
		if err != nil {
			return h, nil, err
		}
		pid, err := checkUser(sock)
		if err == nil {
			soon, cancel := context.WithTimeout(ctx, helloWait)
			h, fds, err = s.hearHello(soon, sock, a)
			cancel()
		}
		if err == nil {
			s.use(sock) // first: a peer that has our hello may begin
			if err = say(sock); err == nil {
				s.pid = pid
				return h, fds, nil
			}
			s.use(-1)
		}
		closeFDs(fds)
		_ = unix.Close(sock)
		if errors.Is(err, fabric.ErrResources) {
			return h, nil, err
		}
		if err := ctx.Err(); err != nil {
			return h, nil, err
		}
	}
}

// hearHello receives the hello of a caller and checks that it is the peer.
func (s *handshake) hearHello(ctx context.Context, sock int, a *address) (h hello, fds []int, err error) {
	var rx receiver
	for {
		var b []byte
		b, fds, err = rx.recv(sock)
		if err == unix.EAGAIN {
			if err = s.wait(ctx, []unix.PollFd{{Fd: int32(sock), Events: unix.POLLIN}}); err == nil {
				continue
			}
		}
		if err != nil {
			return h, nil, err
		}
		if len(b) == 0 {
			err = fmt.Errorf("%w: refused by the peer", fabric.ErrBadAddress)
		} else if h, err = parseHello(b); err == nil && (len(fds) != 2 || h.to != s.addr.token || h.from != a.token) {
			err = fmt.Errorf("%w: hello of another endpoint", fabric.ErrBadAddress)
		}
		if err != nil {
			closeFDs(fds)
			fds = nil
		}
		return h, fds, err
	}
}

// wait sleeps until one of fds is ready, the context ends or the endpoint is closed. It
// sleeps for one time slice at most; the caller calls it again.
func (s *handshake) wait(ctx context.Context, fds []unix.PollFd) error {
	slice := 20
	if fds == nil {
		slice = 1
	}
	_, err := unix.Poll(fds, slice)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case s.closing.Load():
		return fabric.ErrClosed
	case err != nil && err != unix.EINTR:
		return fmt.Errorf("poll: %w", err)
	}
	return nil
}

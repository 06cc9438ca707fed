//go:build linux || darwin || freebsd

package tcp

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// shared is the state that the sockets of a link share. Only one system call is made at a
// time.
type shared struct {
	iov      [maxIov]iovec
	msg      msghdr
	poller   poller
	receives uint32 // receives with data
}

// socket is one connection to a peer, non-blocking, protected or not. It belongs to the
// owner, but fd, sec and silence change under endpoint.mu, and others read them under it.
type socket struct {
	fd      int      // -1 without a connection
	sec     *records // nil if the connection is not protected
	sys     *shared  // of the link
	seat    seat     // of the endpoint
	blocked bool     // the last send found it full
	watched watch
	silence silence
}

func (s *socket) open() bool { return s.fd >= 0 }

// recv receives into the pieces of v, total bytes in all. It returns 0 without an error if
// there is no data, errHungUp at the end, errForged for data that the peer did not send,
// and otherwise the system's error.
// Hot path.
func (s *socket) recv(v []iovec, total int) (int, error) {
	var n int
	var errno unix.Errno
	switch {
	case s.sec != nil:
		n, errno = s.sec.recv(s.fd, v, total)
	case len(v) == 1:
		n, errno = recvBytes(s.fd, uint64(v[0].base), total)
	default:
		n, errno = recvVec(s.fd, v, total)
	}
	switch {
	case errno == 0 && n > 0:
		s.sys.receives++
		return n, nil
	case errno == 0:
		return 0, errHungUp
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return 0, nil
	case errno == forged && s.sec != nil:
		return 0, errForged
	}
	return 0, errno
}

// send sends from the pieces of v, total bytes in all, and returns the number of bytes
// taken; blocked is set if some were not. An error is the system's, and final.
// Hot path.
func (s *socket) send(v []iovec, total int) (int, error) {
	var n int
	var errno unix.Errno
	switch {
	case s.sec != nil:
		n, errno = s.sec.send(s.fd, v, total)
	case len(v) == 1 && total <= longCall:
		n, errno = sendBytes(s.fd, uint64(v[0].base), total)
	default:
		n, errno = sendVec(s.fd, &s.sys.msg, v, total)
	}
	switch errno {
	case 0:
		s.blocked = n < total
		return n, nil
	case unix.EAGAIN, unix.EINTR:
		s.blocked = true
		return 0, nil
	}
	return 0, errno
}

// more reports data that recv would return and for which the system has no event.
func (s *socket) more() bool { return s.sec.more() }

// watch makes the poller report want of the socket.
func (s *socket) watch(want watch) error {
	if s.watched == want {
		return nil
	}
	if err := s.sys.poller.set(s.seat, s.fd, s.watched, want); err != nil {
		return fmt.Errorf("watch socket: %w", err)
	}
	s.watched = want
	return nil
}

// silent reports whether the peer's host has acknowledged nothing for limit although data
// waits for it.
func (s *socket) silent(now time.Time, limit time.Duration) bool {
	return s.silence.over(s.fd, now, limit)
}

func (s *socket) close() {
	_ = unix.Close(s.fd)
	s.sec.free()
	s.fd, s.sec = -1, nil
}

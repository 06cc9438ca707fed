package tcp

import (
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// deferAccept is how long the kernel keeps a connection on which nothing was sent, in seconds.
// Who dials speaks first.
const deferAccept = 1

// door is a listener that closes the connections of strangers before they have more than a
// descriptor: a net.Conn with its place in the runtime's poller, and a goroutine, would cost
// several times as much.
type door struct {
	net.Listener
	f  *os.File // the same socket, with which the runtime lets this package accept
	rc syscall.RawConn
}

func newDoor(ln net.Listener) (net.Listener, error) {
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	rc, err := f.SyscallConn()
	if err == nil {
		// Strangers that say nothing cost this process nothing. A kernel that refuses passes
		// on all connections.
		err = rc.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, deferAccept)
		})
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), ln.Close())
	}
	return &door{ln, f, rc}, nil
}

func (d *door) Close() error { return errors.Join(d.f.Close(), d.Listener.Close()) }

// Accept returns the next connection that is not known to be a stranger's.
func (d *door) Accept() (net.Conn, error) {
	for {
		fd, why := -1, error(nil)
		if err := d.rc.Read(func(s uintptr) bool {
			for {
				fd, _, why = unix.Accept4(int(s), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
				if !errors.Is(why, unix.EINTR) && !errors.Is(why, unix.ECONNABORTED) {
					return !errors.Is(why, unix.EAGAIN)
				}
			}
		}); err != nil {
			return nil, err
		}
		if why != nil {
			return nil, os.NewSyscallError("accept4", why)
		}
		if !speaks(fd) {
			_ = unix.Close(fd)
			continue
		}
		f := os.NewFile(uintptr(fd), "tcp")
		c, err := net.FileConn(f)
		_ = f.Close()
		return c, err
	}
}

// speaks reports whether what a connection has received so far can be the beginning of a
// hello.
func speaks(fd int) bool {
	var b [len(helloMagic)]byte
	n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	switch {
	case err == unix.EAGAIN, err == unix.EINTR:
		return true // nothing yet
	case err != nil || n == 0:
		return false
	}
	return string(b[:n]) == helloMagic[:n]
}

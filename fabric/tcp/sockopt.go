//go:build linux || darwin || freebsd

package tcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// path describes the network path to a peer.
type path struct {
	rtt        time.Duration // shortest seen while connecting; 0: unknown
	congestion string        // in use; "": unknown
	mss        int           // bytes in a full segment
	class      Class
	crypt      Crypt // the agreed one
}

// takeSocket takes the descriptor out of c (which the caller closes) and prepares it for
// raw use.
func (co *connector) takeSocket(c net.Conn) (socket, path, error) {
	rc, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return socket{}, path{}, err
	}
	fd := -1
	var ferr error
	if err := rc.Control(func(s uintptr) {
		fd, ferr = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0)
	}); err != nil {
		return socket{}, path{}, err
	}
	if ferr != nil {
		return socket{}, path{}, ferr
	}
	p := co.l.cfg.pathOf(fd, c)
	if err := co.l.cfg.tune(fd, p.class, co.peerTimeout); err != nil {
		_ = unix.Close(fd)
		return socket{}, path{}, fmt.Errorf("set socket options: %w", err)
	}
	p.congestion = congestionOf(fd)
	p.mss, _ = unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG)
	return socket{fd: fd, sys: &co.l.shared}, p, nil
}

// pathOf returns the path of conn, whose descriptor is fd, before its options are set.
func (c *Config) pathOf(fd int, conn net.Conn) path {
	p := path{rtt: roundTrip(fd)}
	p.class = classify(hostOf(conn.LocalAddr()), hostOf(conn.RemoteAddr()), p.rtt, c.LongRTT)
	return p
}

// hostOf returns the host part of a TCP address.
func hostOf(a net.Addr) netip.Addr {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip, _ := netip.AddrFromSlice(t.IP)
	return ip.Unmap()
}

// tune sets the options of a connected socket. Unless configured, the kernel grows the
// buffers: fixed ones are capped at net.core.*mem_max (208 KiB on a stock system), below
// what one fast stream needs.
func (c *Config) tune(fd int, class Class, peerTimeout time.Duration) error {
	set := func(level, opt, val int) error { return unix.SetsockoptInt(fd, level, opt, val) }
	idle := int(keepIdle(peerTimeout) / time.Second)
	errs := []error{
		unix.SetNonblock(fd, true),
		set(unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		setCongestion(fd, c.Congestion[class]),
	}
	if class != ClassHost { // this host's kernel is alive while this process is
		errs = append(errs,
			// Data that is unacknowledged for this long ends the connection; so do
			// unanswered keepalive probes.
			boundSilence(fd, peerTimeout),
			set(unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1),
			set(unix.IPPROTO_TCP, keepIdleOption, idle),
			set(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 1),
			set(unix.IPPROTO_TCP, unix.TCP_KEEPCNT, idle+1))
	}
	if n := c.Unsent; n > 0 {
		errs = append(errs, lowWater(fd, n))
	}
	if n := c.SendBuffer; n > 0 {
		errs = append(errs, set(unix.SOL_SOCKET, unix.SO_SNDBUF, n))
	}
	return errors.Join(errs...)
}

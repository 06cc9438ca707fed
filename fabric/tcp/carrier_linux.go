package tcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
)

// The kernel says when an interface goes down or loses its carrier. Connections from its addresses
// will not be answered then; a link that resumes, or is one of several, gives them up at once instead
// of after PeerTimeout. Attempts to connect are begun again after every change: what they have sent may
// be lost, and the system would send it again after a second.
// watchCarrier handles changes of interfaces until ctx ends. Without the
// kernel's messages, for example in a sandbox, it does nothing.
func watchCarrier(ctx context.Context, l *link) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return
	}
	if unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK}) != nil {
		_ = unix.Close(fd)
		return
	}
	f := os.NewFile(uintptr(fd), "rtnetlink")
	context.AfterFunc(ctx, func() { _ = f.Close() })
	l.wg.Go(func() {
		before, _ := liveAddrs()
		for buf := make([]byte, 16<<10); ; {
			// What a message says does not matter, nor that some were dropped: the state does.
			if _, err := f.Read(buf); ctx.Err() != nil || err != nil && !errors.Is(err, unix.ENOBUFS) {
				return
			}
			if live, err := liveAddrs(); err == nil {
				if !maps.Equal(before, live) {
					dialAgain(l)
				}
				if comesUp(before, live) {
					l.mu.Lock()
					close(l.up)
					l.up = make(chan struct{})
					l.mu.Unlock()
				}
				giveUpDead(l, live)
				before = live
			}
		}
	})
}

// liveAddrs returns the addresses of interfaces that are up and have a carrier.
func liveAddrs() (map[netip.Addr]bool, error) {
	ifs, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	live := map[netip.Addr]bool{}
	for i := range ifs {
		if ifs[i].Flags&net.FlagUp == 0 || ifs[i].Flags&net.FlagRunning == 0 {
			continue
		}
		addrs, err := ifs[i].Addrs()
		if err != nil {
			continue // it has just been removed
		}
		for _, a := range addrs {
			if n, is := a.(*net.IPNet); is {
				ip, _ := netip.AddrFromSlice(n.IP)
				live[ip.Unmap()] = true
			}
		}
	}
	return live, nil
}

// comesUp reports whether an address has come into use.
func comesUp(before, live map[netip.Addr]bool) bool {
	for a := range live {
		if !before[a] {
			return true
		}
	}
	return false
}

// dialAgain ends attempts to connect that are repeated then.
func dialAgain(l *link) {
	for _, e := range endpoints(l) {
		if abandon := e.abandon.Load(); abandon != nil {
			(*abandon)()
		}
	}
}

// giveUpDead gives up the connections of endpoints of l whose local address is not in live.
func giveUpDead(l *link, live map[netip.Addr]bool) {
	for _, e := range endpoints(l) {
		e.mu.Lock()
		if e.state.Load() == epUp && (e.resumes || l.cfg.Rail) && e.sock.open() {
			if here, ok := localOf(e.sock.fd); ok && !live[here] {
				giveUp(e, fmt.Errorf("tcp: %w: the interface of %v is down", fabric.ErrPeerGone, here))
			}
		}
		e.mu.Unlock()
	}
}

// localOf returns the local address of a socket.
func localOf(fd int) (netip.Addr, bool) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.Addr{}, false
	}
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(a.Addr), true
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(a.Addr).Unmap(), true
	}
	return netip.Addr{}, false
}

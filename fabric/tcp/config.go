package tcp

import (
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Config configures a link. The zero value is usable.
type Config struct {
	// Bind is the address to listen on. The zero value is 127.0.0.1: peers of
	// this host only. 0.0.0.0 and :: listen on all interfaces.
	Bind netip.Addr

	// Advertise is the host addresses written into endpoint addresses, in the
	// order in which peers try them; at most 8. Empty means Bind or, where that
	// is unspecified, the global unicast addresses of the interfaces that are
	// up, IPv4 first, and loopback if there is no other.
	Advertise []netip.Addr

	// SendBuffer and RecvBuffer are the socket buffers in bytes. Zero leaves
	// them to the kernel, which grows them as needed (net.ipv4.tcp_wmem and
	// tcp_rmem); a fixed size is doubled by the kernel and capped by
	// net.core.wmem_max and rmem_max.
	SendBuffer, RecvBuffer int

	// Unsent bounds the bytes that a socket takes beyond what the network takes
	// at the moment, so that urgent frames do not queue behind them in the
	// kernel (TCP_NOTSENT_LOWAT). Zero means 256 KiB, negative no bound.
	Unsent int

	// Congestion is the congestion control for each class of peer. Where it is
	// empty, peers of this host get one that does not pace, if the system's
	// default does; others the system's default. Open fails with a
	// CongestionError if the system refuses one that is named.
	Congestion Congestion

	// Lanes is how many further connections carry the payload of large requests
	// to a peer, striped over them, at most 8; the dialling side proposes, the
	// smaller number holds. Zero means 1, or 4 for peers of ClassLong; negative
	// none: everything goes by one connection.
	Lanes int

	// LaneMin is the size in bytes from which payload goes by the lanes. Zero
	// means 256 KiB.
	LaneMin int

	// LongRTT is the round trip beyond which a peer is of ClassLong. Zero means
	// DefaultLongRTT.
	LongRTT time.Duration

	// Crypt is how what goes over connections is protected. Of two sides' choices
	// the stronger holds.
	Crypt Crypt

	// HandshakeTimeout is how long a stranger that connected may take to prove that
	// it was given an address of this link. Zero means 3 s.
	HandshakeTimeout time.Duration
}

// defaultUnsent is several times what a sender writes at once, so that it can
// fetch more in time, and a tenth of a millisecond of a fast network. On loopback
// 128 KiB and no bound at all gave the same bandwidth.
const defaultUnsent = 256 << 10

// maxLanes bounds the lanes of an endpoint.
const maxLanes = 8

// defaultLaneMin is small enough that what stays on the first connection keeps
// nothing waiting for long (25 µs at 10 GB/s), and large enough that a receive
// that finds a lane empty does not show.
const defaultLaneMin = 256 << 10

// longLanes is the lanes of long paths: there a connection carries what its window
// and the losses in it allow, and a loss slows down one lane's share only.
const longLanes = 4

// lanes is how many lanes peers of a class get.
func (c *Config) lanes(class Class) int {
	switch {
	case c.Lanes != 0:
		return max(c.Lanes, 0)
	case class == ClassLong:
		return longLanes
	}
	return 1
}

// maxPending bounds the connections that have proved nothing yet, maxPendingFrom
// those of one address. One that has had minPending gives way to a newer one: an honest
// peer says which endpoint it wants in its first packet.
const (
	maxPending     = 1024
	maxPendingFrom = maxPending / 2
	minPending     = 50 * time.Millisecond
)

func (c *Config) withDefaults() (Config, error) {
	var d Config
	if c != nil {
		d = *c
	}
	if !d.Bind.IsValid() {
		d.Bind = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	if d.HandshakeTimeout == 0 {
		d.HandshakeTimeout = 3 * time.Second
	}
	if d.Unsent == 0 {
		d.Unsent = defaultUnsent
	}
	if d.LaneMin == 0 {
		d.LaneMin = defaultLaneMin
	}
	if d.Lanes > maxLanes || d.LaneMin < 0 {
		return d, fmt.Errorf("tcp: open: %d lanes from %d bytes on, allowed at most %d, and sizes above 0", d.Lanes, d.LaneMin, maxLanes)
	}
	if d.LongRTT == 0 {
		d.LongRTT = DefaultLongRTT
	}
	if d.HandshakeTimeout < 0 || d.LongRTT < 0 || d.SendBuffer < 0 || d.RecvBuffer < 0 {
		return d, fmt.Errorf("tcp: open: negative size or time in Config")
	}
	if d.Crypt >= numCrypts {
		return d, fmt.Errorf("tcp: open: %v", d.Crypt)
	}
	if len(d.Advertise) > maxAddrs {
		return d, fmt.Errorf("tcp: open: %d addresses to advertise, at most %d", len(d.Advertise), maxAddrs)
	}
	if len(d.Advertise) == 0 {
		if !d.Bind.IsUnspecified() {
			d.Advertise = []netip.Addr{d.Bind}
		} else {
			hosts, err := hostAddrs(d.Bind.Is4())
			if err != nil {
				return d, fmt.Errorf("tcp: open: list interfaces: %w", err)
			}
			d.Advertise = hosts
		}
	}
	for _, a := range d.Advertise {
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() {
			return d, fmt.Errorf("tcp: open: peers cannot connect to %v: advertise an address of this host", a)
		}
	}
	return d, nil
}

// hostAddrs lists the addresses by which other hosts may reach this one.
func hostAddrs(only4 bool) ([]netip.Addr, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var v4, v6 []netip.Addr
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		ip, ok := netip.AddrFromSlice(n.IP)
		if !ok {
			continue
		}
		switch ip = ip.Unmap(); {
		case !ip.IsGlobalUnicast(): // loopback, link-local
		case ip.Is4():
			v4 = append(v4, ip)
		case !only4:
			v6 = append(v6, ip)
		}
	}
	all := append(v4, v6...)
	if len(all) > maxAddrs {
		all = all[:maxAddrs]
	}
	if len(all) == 0 {
		all = append(all, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	}
	return all, nil
}

// keepIdle is how long a connection is idle before the kernel asks whether the
// peer's is there: then once a second, as many times.
func keepIdle(peerTimeout time.Duration) time.Duration {
	return max(time.Second, (peerTimeout / 2).Truncate(time.Second))
}

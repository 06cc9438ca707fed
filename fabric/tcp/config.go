package tcp

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

// Config configures a link. The zero value is usable.
type Config struct {
	// Bind is the address to listen on. The zero value is 127.0.0.1: peers on this host
	// only. 0.0.0.0 and :: listen on all interfaces.
	Bind netip.Addr

	// Advertise lists the host addresses in endpoint addresses, in the order in which peers
	// try them; at most 8. Empty means Bind or, if that is unspecified, the global unicast
	// addresses of the interfaces that are up, IPv4 first, and loopback if there is no
	// other.
	Advertise []netip.Addr

	// SendBuffer is the socket's buffer for sending in bytes. Zero leaves it to the kernel,
	// which grows it as needed (net.ipv4.tcp_wmem); a fixed size is doubled by the kernel and
	// capped by net.core.wmem_max.
	SendBuffer int

	// Unsent bounds the bytes that a socket accepts beyond those that the network accepts
	// at the moment, so that urgent frames do not queue behind them in the kernel
	// (TCP_NOTSENT_LOWAT). Zero means 256 KiB, negative no bound.
	Unsent int

	// Congestion is the congestion control for each class of peer. If it is empty, peers on
	// this host use one without pacing if the system's default has pacing; others use the
	// system's default. Open fails with a CongestionError if the system refuses a named
	// one.
	Congestion Congestion

	// Lanes is the number of additional connections that carry the payload of large
	// requests to a peer, striped over them, at most 8; the dialling side proposes, the
	// smaller number is used. Zero means 1, or 4 for peers of ClassLong; negative none:
	// everything uses one connection.
	Lanes int

	// LaneMin is the size in bytes from which payload uses the lanes. Zero means 256 KiB.
	LaneMin int

	// LongRTT is the round trip beyond which a peer is of ClassLong. Zero means
	// DefaultLongRTT.
	LongRTT time.Duration

	// Resume lets endpoints continue on another connection when theirs is lost, if both sides have
	// it (fabric.Resumer). Paths are other addresses of this host, at which this side listens as
	// well, and at which peers find it then. At most 8 addresses are advertised in all.
	Resume bool
	Paths  []netip.Addr

	// Rail means that other links reach the peers as well: the connections of an interface that goes
	// down end at once, not after PeerTimeout. With Resume they always do.
	Rail bool

	// Named lets the caller choose the keys of regions (fabric.Namer).
	Named bool

	// Crypt is the protection of connections. The stronger of the two sides' choices is
	// used.
	Crypt Crypt

	// HandshakeTimeout bounds how long a stranger that connected may take to prove that it
	// received an address of this link. Zero means 3 s.
	HandshakeTimeout time.Duration
}

// defaultUnsent is several times the size of a send, so that a sender can fetch more in
// time, and corresponds to a tenth of a millisecond of a fast network. On loopback 128 KiB
// and no bound at all had the same bandwidth.
const defaultUnsent = 256 << 10

// maxLanes bounds the lanes of an endpoint.
const maxLanes = 8

// defaultLaneMin: smaller payload on the first connection delays other frames only briefly
// (25 µs at 10 GB/s), and above it the cost of a receive on an empty lane is not
// measurable.
const defaultLaneMin = 256 << 10

// longLanes is the number of lanes of long paths: there the window and losses bound a
// connection, and a loss slows down only one lane's share.
const longLanes = 4

// lanes returns the number of lanes of peers of a class.
func (c *Config) lanes(class Class) int {
	switch {
	case c.Lanes != 0:
		return max(c.Lanes, 0)
	case class == ClassLong:
		return longLanes
	}
	return 1
}

// maxPending bounds the connections that have not proved anything yet, maxPendingFrom those
// from one address. After minPending such a connection is closed in favour of a newer one:
// a correct peer names its endpoint in its first packet, and then keeps its place. Of those that name
// the same endpoint maxNamed do, as many as its peer makes.
const (
	maxPending     = 1024
	maxPendingFrom = maxPending / 2
	maxNamed       = 1 + maxLanes
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
	d.HandshakeTimeout = cmp.Or(d.HandshakeTimeout, 3*time.Second)
	d.Unsent = cmp.Or(d.Unsent, defaultUnsent)
	d.LaneMin = cmp.Or(d.LaneMin, defaultLaneMin)
	if d.Lanes > maxLanes || d.LaneMin < 0 {
		return d, fmt.Errorf("tcp: open: %d lanes from %d bytes on, allowed at most %d, and sizes above 0", d.Lanes, d.LaneMin, maxLanes)
	}
	d.LongRTT = cmp.Or(d.LongRTT, DefaultLongRTT)
	if d.HandshakeTimeout < 0 || d.LongRTT < 0 || d.SendBuffer < 0 {
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
	d.Advertise, d.Paths = d.withPaths()
	for _, a := range d.Advertise {
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() {
			return d, fmt.Errorf("tcp: open: peers cannot connect to %v: advertise an address of this host", a)
		}
	}
	return d, nil
}

// withPaths returns the addresses to advertise, with those of Paths, and those of Paths that Bind does
// not cover.
func (c *Config) withPaths() (advertise, paths []netip.Addr) {
	advertise = slices.Clone(c.Advertise)
	for _, a := range c.Paths {
		if len(advertise) < maxAddrs && !slices.Contains(advertise, a) {
			advertise = append(advertise, a)
			if !c.Bind.IsUnspecified() && a != c.Bind {
				paths = append(paths, a)
			}
		}
	}
	return advertise, paths
}

// firstAttempt is the number of the first connection of endpoints that resume.
const firstAttempt = 1

// attempt returns the attempt of the first connection of an endpoint.
func (c *Config) attempt() uint32 {
	if c.Resume {
		return firstAttempt
	}
	return 0
}

// hostAddrs returns the addresses at which other hosts may reach this one.
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

// keepIdle returns how long a connection is idle before the kernel sends keepalive probes,
// once a second.
func keepIdle(peerTimeout time.Duration) time.Duration {
	return max(time.Second, (peerTimeout / 2).Truncate(time.Second))
}

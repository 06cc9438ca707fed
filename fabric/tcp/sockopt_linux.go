package tcp

import (
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	keepIdleOption = unix.TCP_KEEPIDLE
	noSignal       = unix.MSG_NOSIGNAL
)

// paced are congestion controls that send by a clock, at the rate that they
// believe the path to have. Within a host there is no such rate: every turn of
// the estimate and every timer costs. 1 MiB writes on loopback reach 4.2 GB/s
// under bbr and 8.1 under reno or cubic.
var paced = []string{"bbr", "bbr2", "bbr3"}

// unpaced are what replaces them within a host, the preferred first: reno is in
// every kernel and open to every user.
var unpaced = []string{"reno", "cubic"}

// congestionDir is where the kernel lists its congestion controls.
const congestionDir = "/proc/sys/net/ipv4/"

func congestionNames(file string) []string {
	b, err := os.ReadFile(congestionDir + file)
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

// congestionOffer is what this process may choose from.
func congestionOffer() []string {
	if os.Geteuid() == 0 {
		if all := congestionNames("tcp_available_congestion_control"); all != nil {
			return all
		}
	}
	return congestionNames("tcp_allowed_congestion_control")
}

// resolve fills in the classes that are left to the link: within a host something that does
// not pace, between hosts the system's default, whose administrator knows the
// network.
func (c Congestion) resolve(now string, offer []string) Congestion {
	if c[ClassHost] == "" && slices.Contains(paced, now) {
		for _, name := range unpaced {
			if slices.Contains(offer, name) {
				c[ClassHost] = name
				break
			}
		}
	}
	for i := range c {
		if c[i] == "" {
			c[i] = KernelCongestion
		}
	}
	return c
}

// check resolves c and finds out on a socket that nobody else uses whether the
// kernel takes what it names.
func (c Congestion) check() (Congestion, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == unix.EAFNOSUPPORT {
		fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	}
	if err != nil {
		return c, err
	}
	defer unix.Close(fd)
	now, _ := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	r := c.resolve(strings.TrimRight(now, "\x00"), congestionOffer())
	for i, name := range r {
		if err := setCongestion(fd, name); err != nil {
			if c[i] == "" { // nobody asked for it
				r[i] = KernelCongestion
				continue
			}
			return c, err
		}
	}
	return r, nil
}

// setCongestion gives a socket the congestion control of that name.
func setCongestion(fd int, name string) error {
	if name == KernelCongestion {
		return nil
	}
	if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name); err != nil {
		return &CongestionError{Name: name, Offered: congestionOffer(), Err: err}
	}
	return nil
}

// congestionOf names what a socket uses, "" if the system does not say.
func congestionOf(fd int) string {
	s, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	if err != nil {
		return ""
	}
	return strings.TrimRight(s, "\x00")
}

// roundTrip is the shortest round trip that the kernel has seen on a socket, 0
// if it has seen none. The handshake of TCP alone is one.
func roundTrip(fd int) time.Duration {
	i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0
	}
	us := i.Rtt
	if i.Min_rtt != 0 && i.Min_rtt != ^uint32(0) {
		us = min(us, i.Min_rtt)
	}
	return time.Duration(us) * time.Microsecond
}

// lowWater bounds what a socket takes beyond what it may send: the rest waits
// here, where urgent frames can still go first.
func lowWater(fd, n int) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, n)
}

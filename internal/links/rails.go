package links

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/ibv"
	"github.com/seed33544411/rma/fabric/tcp"
)

// EnvRails is the variable of Options.Rails.
const EnvRails = "RMA_RAILS"

// splitRails returns the entries of a list of rails.
func splitRails(list string) (rails []string) {
	for where := range strings.SplitSeq(list, ",") {
		if where = strings.TrimSpace(where); where != "" {
			rails = append(rails, where)
		}
	}
	return rails
}

// OpenRail opens a further link of that kind: where is an entry of Options.Rails. Its endpoints end with
// their connection.
func OpenRail(kind, where string, o Options) (fabric.Link, error) {
	o.Rails, o.Fallback = nil, false
	switch kind {
	case "tcp":
		a, err := localAddr(where)
		if err != nil {
			return nil, err
		}
		o.Bind = a
		return openTCPAs(o, func(c *tcp.Config) { c.Rail = true })
	default:
		s, err := spareOf(where)
		if err != nil {
			return nil, err
		}
		o.Device, o.Port, o.GIDIndex = s.Device, s.Port, nil
	}
	return Open(kind, o)
}

// spareOf returns the port of an RDMA device that an entry of Options.Rails stands for.
func spareOf(where string) (ibv.Spare, error) {
	dev, port, ok := strings.Cut(where, ":")
	if !ok {
		return ibv.Spare{Device: where}, nil
	}
	n, err := strconv.ParseUint(port, 10, 8)
	if err != nil || n == 0 {
		return ibv.Spare{}, fmt.Errorf("%w: %s: %q: want DEVICE[:PORT]", ErrEnvironment, EnvRails, where)
	}
	return ibv.Spare{Device: dev, Port: int(n)}, nil
}

// localAddr returns the address of this host that an address, the prefix of a network, or
// the name of an interface stands for.
func localAddr(where string) (netip.Addr, error) {
	if a, err := netip.ParseAddr(where); err == nil {
		return a, nil
	}
	all, err := net.InterfaceAddrs()
	in := func(netip.Addr) bool { return true }
	if p, perr := netip.ParsePrefix(where); perr == nil {
		in = p.Contains
	} else {
		var i *net.Interface
		if i, err = net.InterfaceByName(where); err == nil {
			all, err = i.Addrs()
		}
	}
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%w: %s: %q: want an address, a network (10.1.0.0/16) or an interface: %w", ErrEnvironment, EnvRails, where, err)
	}
	for _, x := range all {
		if n, ok := x.(*net.IPNet); ok {
			if a, ok := netip.AddrFromSlice(n.IP); ok && !a.IsLinkLocalUnicast() && in(a.Unmap()) {
				return a.Unmap(), nil
			}
		}
	}
	return netip.Addr{}, fmt.Errorf("links: rail %q: this host has no address there", where)
}

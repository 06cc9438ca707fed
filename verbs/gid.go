package verbs

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
)

// GID is a 128-bit address of a port, in network byte order. On RoCE v2 it is an
// IPv6 address, or an IPv4 address in its IPv6-mapped form.
type GID [16]byte

// Addr returns the GID as an IP address, an IPv4 address if it is IPv4-mapped.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// IsZero reports an empty entry.
func (g GID) IsZero() bool { return g == GID{} }

// String formats the GID as an IPv6 address.
func (g GID) String() string { return netip.AddrFrom16(g).String() }

// GIDType is the protocol of a GID.
type GIDType uint32

// GID types.
const (
	GIDInfiniBand GIDType = iota
	GIDRoCEv1
	GIDRoCEv2
)

// String names the type.
func (t GIDType) String() string {
	return name("gid-type", []string{"InfiniBand", "RoCE v1", "RoCE v2"}, int(t))
}

// GIDEntry is one valid entry of the GID table of a port.
type GIDEntry struct {
	Index  int
	GID    GID
	Type   GIDType
	NetDev string // network interface of the address, empty if none or unknown
}

// GIDs returns the valid entries of a port's GID table, in table order.
func (c *Context) GIDs(port int) ([]GIDEntry, error) {
	pa, err := c.QueryPort(port)
	if err != nil {
		return nil, err
	}
	op := fmt.Sprintf("read GID table of port %d of %s", port, c.name)
	h, err := c.use(op)
	if err != nil {
		return nil, err
	}
	da, err := c.QueryDevice()
	if err != nil {
		return nil, err
	}
	// The call returns the valid entries of all ports. Its buffer may not exceed 64 KiB, 2047
	// entries (the kernel's attributes have 16-bit lengths); for more the device returns
	// EINVAL.
	most := min((pa.GIDs+1)*(da.Ports+1), 2000)
	es, no := rawGIDTable(h, most)
	if no == 0 {
		out := make([]GIDEntry, 0, len(es))
		names := map[uint32]string{} // by index: many addresses are of one interface, and each query is a dump of all
		for _, e := range es {
			if e.port != uint32(port) {
				continue
			}
			ge := GIDEntry{Index: int(e.index), GID: e.gid, Type: GIDType(e.typ)}
			name, known := names[e.ifindex]
			if !known && e.ifindex != 0 {
				if ifc, err := net.InterfaceByIndex(int(e.ifindex)); err == nil {
					name = ifc.Name
				}
				names[e.ifindex] = name
			}
			ge.NetDev = name
			out = append(out, ge)
		}
		return out, nil
	}
	if no != syscall.ENOSYS && no != syscall.EOPNOTSUPP && no != syscall.EPROTONOSUPPORT && no != syscall.EINVAL {
		return nil, fail(op, no, "")
	}
	return c.gidsFromSysfs(op, h, port, pa)
}

// gidsFromSysfs reads the table from sysfs, for libraries and kernels without the table
// query.
func (c *Context) gidsFromSysfs(op string, h uintptr, port int, pa PortAttr) ([]GIDEntry, error) {
	var out []GIDEntry
	for i := range pa.GIDs {
		g, no := rawQueryGID(h, uint8(port), i)
		if no != 0 {
			if no == errNoData || no == syscall.EAGAIN || no == syscall.EINVAL {
				continue
			}
			return nil, fail(op, no, fmt.Sprintf("at index %d", i))
		}
		if GID(g).IsZero() {
			continue
		}
		attr := func(kind string) (string, error) {
			b, err := os.ReadFile(fmt.Sprintf("/sys/class/infiniband/%s/ports/%d/gid_attrs/%s/%d", c.name, port, kind, i))
			return strings.TrimSpace(string(b)), err
		}
		e := GIDEntry{Index: i, GID: g, Type: GIDInfiniBand}
		t, err := attr("types")
		if err != nil && (errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOENT)) && pa.LinkLayer == LinkEthernet {
			continue // the entry was removed meanwhile
		}
		switch t {
		case "RoCE v2":
			e.Type = GIDRoCEv2
		case "IB/RoCE v1":
			if pa.LinkLayer == LinkEthernet {
				e.Type = GIDRoCEv1
			}
		}
		e.NetDev, _ = attr("ndevs")
		out = append(out, e)
	}
	return out, nil
}

// rawGID is an entry in the layout of the library's table query.
type rawGID struct {
	gid                       [16]byte
	index, port, typ, ifindex uint32
}

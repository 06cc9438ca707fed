package sampling

import (
	"slices"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/topo"
)

// Class is the distance to the peer.
type Class string

// Classes of peers. On the same host they differ by the processors, caches and packages that
// they share with this process (internal/topo). SameHost is used if that is unknown, or may
// change at any moment because the processes are not bound to processors. Over a network
// whose link measures round trips the class is Near, or one of four that are long.
const (
	OneCore    Class = "host-core"
	SharedL2   Class = "host-l2"
	SharedL3   Class = "host-l3"
	SameHost   Class = "host"
	OneSocket  Class = "host-socket" // one package, no shared cache
	Sockets    Class = "host-far"    // different packages
	SameDevice Class = "device"      // through the same adapter, back to this host
	Near       Class = "near"        // another host, closer than what the link calls long
	Remote     Class = "remote"      // another host, the link does not say how far
	Long       Class = "long"        // up to 4 ms of round trip
	Long4      Class = "long-4ms"    // from 4 ms
	Long16     Class = "long-16ms"
	Long64     Class = "long-64ms"
)

// classes lists them, the nearest first.
var classes = []Class{OneCore, SharedL2, SharedL3, SameHost, OneSocket, Sockets, SameDevice, Near, Remote, Long, Long4, Long16, Long64}

var nearClass = map[string]Class{
	topo.Unknown.String(): SameHost,
	topo.Core.String():    OneCore,
	topo.L2.String():      SharedL2,
	topo.L3.String():      SharedL3,
	topo.Socket.String():  OneSocket,
	topo.Far.String():     Sockets,
}

// ClassOf returns the class of the peer of a connected endpoint. sameHost is the caller's
// knowledge; endpoints of links inside a host (fabric.Neighbour) and over networks
// (fabric.Distant) know more. Both sides get the same result if both see the same host
// topology, and measure round trips on the same side of each bound.
func ClassOf(ep fabric.Endpoint, sameHost bool) Class {
	if sameHost {
		if n, ok := ep.(fabric.Neighbour); ok {
			if c, ok := nearClass[n.Near().Class]; ok {
				return c
			}
		}
		return SameHost
	}
	if d, ok := ep.(fabric.Distant); ok {
		switch d := d.Distance(); {
		case d.Class == "near":
			return Near
		case d.Class == "long" && d.RTT < 4*time.Millisecond:
			return Long
		case d.Class == "long" && d.RTT < 16*time.Millisecond:
			return Long4
		case d.Class == "long" && d.RTT < 64*time.Millisecond:
			return Long16
		case d.Class == "long":
			return Long64
		}
	}
	return Remote
}

// IsLong reports whether it is the class of peers that are milliseconds away.
func (c Class) IsLong() bool { return slices.Index(classes, c) >= slices.Index(classes, Long) }

// Nearest returns the one of among that is most like c; the nearer one where two are. ok is
// false if among is empty.
func (c Class) Nearest(among []Class) (best Class, ok bool) {
	off := func(x Class) (int, int) {
		i := slices.Index(classes, x)
		d := i - slices.Index(classes, c)
		if d < 0 {
			d = -d
		}
		return d, i
	}
	for _, x := range among {
		d, i := off(x)
		if bd, bi := off(best); !ok || d < bd || d == bd && i < bi {
			best, ok = x, true
		}
	}
	return best, ok
}

// Known reports whether it is one of this package, or none.
func (c Class) Known() bool { return c == "" || slices.Contains(classes, c) }

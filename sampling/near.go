package sampling

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/topo"
)

// Classes of peers on the same host, by the processors, caches and packages that they share
// with this process (internal/topo). SameHost is used if that is unknown, or may change at
// any moment because the processes are not bound to processors.
const (
	OneCore   Class = "host-core"
	SharedL2  Class = "host-l2"
	SharedL3  Class = "host-l3"
	OneSocket Class = "host-socket" // one package, no shared cache
	Sockets   Class = "host-far"    // different packages
)

var nearClass = map[string]Class{
	topo.Unknown.String(): SameHost,
	topo.Core.String():    OneCore,
	topo.L2.String():      SharedL2,
	topo.L3.String():      SharedL3,
	topo.Socket.String():  OneSocket,
	topo.Far.String():     Sockets,
}

// ClassOf returns the class of the peer of a connected endpoint. sameHost is the caller's
// knowledge; endpoints of links inside a host (fabric.Neighbour) know more. Both sides get
// the same result if both see the same host topology.
func ClassOf(ep fabric.Endpoint, sameHost bool) Class {
	if !sameHost {
		return Remote
	}
	if n, ok := ep.(fabric.Neighbour); ok {
		if c, ok := nearClass[n.Near().Class]; ok {
			return c
		}
	}
	return SameHost
}

func (c Class) known() bool {
	switch c {
	case "", SameHost, SameDevice, Remote:
		return true
	}
	for _, k := range nearClass {
		if c == k {
			return true
		}
	}
	return false
}

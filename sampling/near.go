package sampling

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/topo"
)

// Classes of peers on the same host, by what their processors have in common with
// ours (internal/topo). SameHost is where that is unknown, or may be another thing in
// the next moment because nobody bound the processes to processors.
const (
	OneCore   Class = "host-core"
	SharedL2  Class = "host-l2"
	SharedL3  Class = "host-l3"
	OneSocket Class = "host-socket" // one package, no cache in common
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

// ClassOf is the class of the peer of a connected endpoint. sameHost is what the
// caller knows; endpoints of links inside a host (fabric.Neighbour) know more. Both
// sides come to the same result where both see the host alike.
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

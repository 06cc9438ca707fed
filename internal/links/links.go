package links

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/seed33544411/rma/fabric"
)

// ErrUnknown says that there is no link of that name.
var ErrUnknown = errors.New("unknown link")

// ErrNoLink says that two ranks have no link in common.
var ErrNoLink = errors.New("no link to the peer")

// Options configures the links. The zero value is usable. Each link looks at
// its own fields only.
type Options struct {
	DisableCMA      bool // shm: no process_vm_readv/writev
	DisableSegments bool // shm: Alloc hands out private memory

	// StreamFrom and StringFrom are sizes in bytes from which on shm copies past the
	// cache, and by the string instruction; 0: found out, negative: never.
	StreamFrom, StringFrom int64

	// Bind is the address that tcp listens on; the zero value is the loopback
	// address: peers of this host only.
	Bind netip.Addr

	Congestion string        // tcp: as tcp.ParseCongestion reads it
	Crypt      string        // tcp: as tcp.ParseCrypt reads it
	Unsent     int           // tcp: see tcp.Config
	LongRTT    time.Duration // tcp: see tcp.Config
	Lanes      int           // tcp: see tcp.Config
	LaneMin    int           // tcp: see tcp.Config

	Device   string // ibv: device name; empty: the first that is usable
	Port     int    // ibv: from 1; 0: the first that is up
	GIDIndex *int   // ibv: entry of the GID table; nil: chosen by the rules of package verbs

	// LastByteLast is whether ibv promises that the last word of a write is
	// visible last; nil: yes, see fabric/ibv.
	LastByteLast *bool

	// Guard is whether ibv guards connections against the faults of rdma_rxe on
	// a lossy wire. nil: where it has to.
	Guard *bool
}

// Reachable sets Bind, where it is not, to where the ranks of a job reach this one: own
// is the address by which it reaches the job's server, if that is known. Ranks that all
// are on one host keep to its loopback.
func (o *Options) Reachable(oneHost bool, own netip.Addr) {
	if oneHost || o.Bind.IsValid() {
		return
	}
	if o.Bind = own; !own.IsValid() {
		o.Bind = netip.IPv4Unspecified()
	}
}

// entry is one kind of link. A new one is a file with its open function and a
// line here, in the order in which they are preferred between two ranks of a host.
type entry struct {
	name, alias string
	sameHost    bool // reaches ranks of this host only
	open        func(Options) (fabric.Link, error)
}

var registry = []entry{
	{name: "shm", sameHost: true, open: openSHM},
	{name: "ibv", alias: "verbs", open: openIBV},
	{name: "tcp", open: openTCP},
}

// simulated opens the simulated link, if Simulate has been called.
var simulated func(Options) (fabric.Link, error)

// Simulate makes a link called "sim" available, for tests: it is used where
// Options.Device begins with that name, never chosen. Call it before anything else
// of this package.
func Simulate(open func(Options) (fabric.Link, error)) { simulated = open }

// Names lists the links, the preferred first.
func Names() []string {
	var names []string
	for _, e := range registry {
		names = append(names, e.name)
	}
	return names
}

// Canonical returns the link's proper name: "ibv" for "verbs", and "" for ""
// and "auto". The error wraps ErrUnknown.
func Canonical(name string) (string, error) {
	if name == "" || name == "auto" {
		return "", nil
	}
	e, err := find(name)
	if err != nil {
		return "", err
	}
	return e.name, nil
}

func find(name string) (entry, error) {
	for _, e := range registry {
		if name != "" && (name == e.name || name == e.alias) {
			return e, nil
		}
	}
	if name == "sim" && simulated != nil {
		return entry{name: name, open: simulated}, nil
	}
	return entry{}, fmt.Errorf("links: %w %q: want %s, verbs or auto", ErrUnknown, name, strings.Join(Names(), ", "))
}

// Open opens the link of that name. Where it cannot work here the error says
// why (and wraps fabric.ErrNotSupported where the host lacks what it needs).
func Open(name string, o Options) (fabric.Link, error) {
	e, err := find(name)
	if err != nil {
		return nil, err
	}
	return e.open(o)
}

// Status says whether a link works here.
type Status struct {
	Name   string
	Usable bool
	Reason error // why not; nil where it is usable
}

// Probe opens and closes every link.
func Probe(o Options) []Status {
	var all []Status
	for _, e := range registry {
		l, err := e.open(o)
		if err == nil {
			err = l.Close()
		}
		all = append(all, Status{Name: e.name, Usable: err == nil, Reason: err})
	}
	return all
}

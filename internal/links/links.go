package links

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/settings"
	"github.com/seed33544411/rma/logp"
)

// ErrUnknown means that there is no link of that name.
var ErrUnknown = errors.New("unknown link")

// ErrNoLink means that two ranks have no link in common.
var ErrNoLink = errors.New("no link to the peer")

// Options configures the links. The zero value is usable. Each link uses its own fields
// only.
type Options struct {
	Host string // see Offer.On

	DisableCMA      bool // shm: no process_vm_readv/writev
	DisableSegments bool // shm: Alloc returns private memory

	// StreamFrom and StringFrom are the sizes in bytes from which shm copies past the
	// cache, and by the string instruction; 0: automatic, negative: never.
	StreamFrom, StringFrom int64

	// Bind is the address that tcp listens on; the zero value is the loopback address:
	// peers on this host only.
	Bind netip.Addr

	Congestion string        // tcp: see tcp.ParseCongestion
	Crypt      string        // tcp: see tcp.ParseCrypt
	Unsent     int           // tcp: see tcp.Config
	LongRTT    time.Duration // tcp: see tcp.Config
	Lanes      int           // tcp: see tcp.Config
	LaneMin    int           // tcp: see tcp.Config

	Device   string // ibv: device name; empty: the first usable one
	Port     int    // ibv: from 1; 0: the first one that is up
	GIDIndex *int   // ibv: entry of the GID table; nil: chosen by the rules of package verbs

	// Rails are further links of the kind that reaches other hosts: see OpenRail. With any, endpoints of tcp
	// and ibv resume lost connections, over these as well.
	Rails []string

	// Fallback: ibv connects endpoints over tcp where verbs does not connect them: see package fallback.
	Fallback bool

	// LastByteLast: ibv promises that the last word of a write becomes visible last; nil:
	// yes, see fabric/ibv.
	LastByteLast *bool

	// Guard: ibv guards connections against the defects of rdma_rxe on a lossy network.
	// nil: if necessary.
	Guard *bool

	// HostAtomics: ibv has the target's processor execute atomics, see ibv.Options.
	HostAtomics bool
}

// Reachable sets Bind, if it is not set, to an address at which the ranks of a job reach
// this one. own is the address by which this host reaches the job's server, if known. If
// all ranks are on one host, Bind stays at loopback.
func (o *Options) Reachable(oneHost bool, own netip.Addr) {
	if oneHost || o.Bind.IsValid() {
		return
	}
	if o.Bind = own; !own.IsValid() {
		o.Bind = netip.IPv4Unspecified()
	}
}

// entry is one kind of link. A new one is a file with its open function and a line here, in
// the order of preference between two ranks on one host.
type entry struct {
	name, alias string
	sameHost    bool // reaches only ranks on this host
	open        func(Options) (fabric.Link, error)
}

var registry = []entry{
	{name: "shm", sameHost: true, open: openSHM},
	{name: "ibv", alias: "verbs", open: openIBV},
	{name: "tcp", open: openTCP},
}

// simulated opens the simulated link if Simulate has been called.
var simulated func(Options) (fabric.Link, error)

// Simulate makes a link called "sim" available, for tests: it is used if Options.Device
// begins with that name, and never chosen. Call it before any other function of this
// package.
func Simulate(open func(Options) (fabric.Link, error)) { simulated = open }

// decorate changes the links that Open opens, if Decorate has been called.
var decorate func(fabric.Link) (fabric.Link, error)

// Decorate has Open return what f makes of each link, for tests with a rank that breaks the
// rules of the protocols. Call it before anything else of this package.
func Decorate(f func(fabric.Link) (fabric.Link, error)) { decorate = f }

// Names lists the links in order of preference.
func Names() []string {
	var names []string
	for _, e := range registry {
		names = append(names, e.name)
	}
	return names
}

// Canonical returns the canonical name of a link: "ibv" for "verbs", and "" for "" and
// "auto". The error wraps ErrUnknown.
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

// Kind returns the name of a link in settings and reports: "verbs" for "ibv".
func Kind(name string) string {
	for _, e := range registry {
		if e.name == name && e.alias != "" {
			return e.alias
		}
	}
	return name
}

// ModeTables reads the text of tables of modes, with sections for the links by their Kind.
// Errors are those of logp.ParseTables.
func ModeTables(text string) (logp.Tables, error) {
	var kinds []string
	for _, name := range Names() {
		kinds = append(kinds, Kind(name))
	}
	return logp.ParseTables(text, kinds...)
}

// TableOf returns the text of the tables of modes in the settings. Errors are those of ModeTables.
func TableOf(v *settings.Values) (string, error) {
	text := v.Text(EnvModeTable)
	if _, err := ModeTables(text); err != nil {
		return "", v.Invalid(EnvModeTable, err)
	}
	return text, nil
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

// Open opens the link of that name. If it cannot work here the error contains the reason
// (and wraps fabric.ErrNotSupported if the host lacks a requirement).
func Open(name string, o Options) (fabric.Link, error) {
	e, err := find(name)
	if err != nil {
		return nil, err
	}
	l, err := e.open(o)
	if err != nil || decorate == nil {
		return l, err
	}
	return decorate(l)
}

// Status reports whether a link works here.
type Status struct {
	Name   string
	Usable bool
	Reason error // why not; nil if it is usable
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

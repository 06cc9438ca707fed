//go:build linux || darwin || freebsd

package tcp

// watch is the set of events that the poller reports of a socket.
type watch uint8

const (
	watchIn  watch = 1 << iota // data, or its end
	watchOut                   // room for data
)

// seat is an endpoint's place in link.tab, by which the poller identifies its sockets, and
// the generation of the place.
type seat struct {
	idx int
	gen uint32
}

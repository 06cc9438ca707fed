//go:build linux || darwin || freebsd

package tcp

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/event"
)

var linkCaps = fabric.Caps{
	MaxSGE:         maxSGE,
	MaxInline:      maxInline,
	MaxMessage:     maxMessage,
	MaxReads:       maxReads,
	LastByteLast:   true,
	WakesOnWrite:   true,
	AtomicCPU:      true,
	TargetProgress: true,
}

// link implements fabric.Link. The first group of fields belongs to the owner; fields that
// other goroutines access are below mu or atomic.
type link struct {
	memory
	shared

	active   []*endpoint // endpoints with an open socket
	tab      []*endpoint // the same by index in the poller; nil if free
	gen      uint32      // distinguishes the users of a table entry
	direct   int         // directMax, except in tests
	deferred []*endpoint // endpoints with work for the next Poll or before sleeping
	spare    []*endpoint // the other buffer of deferred
	ready    readyList
	received int // receives since all sockets were watched, see unwatch

	last   *endpoint // the endpoint that received last
	streak uint32    // consecutive receives of last
	polls  uint32    // calls of Poll

	waking event.Event
	cfg    Config
	port   uint16

	fresh    atomic.Int32          // endpoints in joined and resumed
	noAccept atomic.Pointer[error] // why no connection can be accepted now
	closed   atomic.Bool

	mu      sync.Mutex
	joined  []*endpoint // connected, not yet adopted by the owner
	resumed []*endpoint // to be suspended or resumed by the owner
	all     map[*endpoint]struct{}
	byNonce map[uint64]*endpoint
	ended   []ended // oldest first
	regions map[*region]struct{}
	up      chan struct{} // see NetworkUp

	lns     []net.Listener // that of cfg.Bind, then those of cfg.Paths
	pending strangers
	nobody  token         // token for endpoints that do not exist
	met     chan struct{} // has room for one: an endpoint was connected
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

// States of an endpoint. Only Connect and Close change them from other
// goroutines, under endpoint.mu.
const (
	epIdle uint32 = iota
	epConnecting
	epUp
	epDown
	epClosed
)

// endpoint implements fabric.Endpoint: the requests of this side (requester), those of the
// peer (responder), and the streams on which both travel. It sets up and ends the
// connection and calls the others. Everything belongs to the owner except the fields
// guarded by mu.
type endpoint struct {
	l     *link
	id    uint32
	state atomic.Uint32
	path  path // under mu

	distance fabric.Distance // of the first path

	req   requester
	resp  responder
	out   outgoing
	in    receiver
	sock  socket // the first connection, which represents the endpoint
	lanes lanes
	bulk  laneReceiver
	comps completions
	turn  bool // the last frame was a reply

	draining bool // down; discards received data until the peer hangs up
	drainEnd time.Time

	twin *endpoint // the other end, if it belongs to this link; the owner's

	adopted    bool
	inDeferred bool

	connector
	session
	mem []byte

	mu     sync.Mutex         // held while sockets are published and closed
	cancel context.CancelFunc // of Connect, and of making a connection again
	err    error              // the first reason
}

// connector makes the connections of one endpoint, the first and the lanes, by dialling the
// peer or by waiting for it to dial.
type connector struct {
	l           *link
	token       token
	nonce       uint64
	with        uint64 // nonce of the peer, once connected
	peerTimeout time.Duration
	arrivals    chan arrival  // parked until await fetches them
	attempt     atomic.Uint32 // of the last first connection that was dialled or accepted
	least       Crypt         // protection that a connection needs besides that of its class

	abandon atomic.Pointer[context.CancelFunc] // ends an attempt to dial that may be repeated, at once
}

// session is what an endpoint has to know to continue on another connection when its own is lost.
type session struct {
	resumes bool // both sides do
	peer    address
	outage  error  // why there is no connection at present, nil if there is one; the owner's
	outages uint64 // the owner's
	remade  *joint // endpoint.mu guards it

	// The attempt whose connection the peer, which does not dial, says that it has lost; endpoint.mu
	// guards it.
	deserted uint32
}

// joint is the outcome of making the connections of an endpoint, the first one and the lanes.
type joint struct {
	conns   []agreed
	reads   uint32 // hello.reads of the peer
	attempt uint32
	theirs  tally

	// Set when the connections are made again.
	socks []socket
	path  path
	err   error
}

// arrival is a connection whose other side has proved that it knows this endpoint's token.
type arrival struct {
	conn net.Conn
	h    hello
	said transcript
}

// agreed is a connection on which both sides have completed the handshake.
type agreed struct {
	conn net.Conn
	keys keys
}

// strangers holds the connections that have not proved anything yet.
type strangers struct {
	mu     sync.Mutex
	conns  []*stranger // oldest first
	from   map[netip.Prefix]int
	closed bool
}

type stranger struct {
	conn  net.Conn
	since time.Time
	net   netip.Prefix // its network
	names uint64       // nonce of the endpoint for whose sake it keeps its place, 0 if there is none
}

// endpoints returns the endpoints of l that have not been released.
func endpoints(l *link) []*endpoint {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.all))
}

// ended is what a link keeps of an endpoint that has ended.
type ended struct {
	nonce, peer   uint64
	token, theirs token
	end           end
	tally         tally
	until         time.Time
}

// region implements fabric.Region.
type region struct {
	l      *link
	mem    []byte
	addr   uint64
	lkey   uint32
	rkey   uint32
	access fabric.Access
	owned  bool // memory came from Alloc
	once   sync.Once
	err    error // of the only closing
}

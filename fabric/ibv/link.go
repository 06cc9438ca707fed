package ibv

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
	"github.com/seed33544411/rma/verbs"
)

const (
	// chainMax is the number of requests posted by one call into C, and of completions polled
	// by one. More than 64 gain nothing, see verbs.
	chainMax = 64

	// maxSGE bounds Caps.MaxSGE. Devices offer about 32; each adds 16 bytes to a slot of the
	// send queue.
	maxSGE = 32

	// wantInline is the size requested from the device for Caps.MaxInline: it fits the room
	// of 16 pieces.
	wantInline = 256

	// maxEndpoints follows from the 16 bits for the endpoint in a request's ID.
	maxEndpoints = 1 << 16
)

// ErrTooManyEndpoints says that the completion queue cannot be made large enough for one
// more endpoint. Use smaller depths, or a second link.
var ErrTooManyEndpoints = errors.New("too many endpoints")

// ErrNoReads says that a device serves no RDMA reads, which the engine cannot do without.
var ErrNoReads = errors.New("the device serves no RDMA reads (max_qp_rd_atom, max_qp_init_rd_atom)")

// Link is an RDMA port. It implements fabric.Link.
type Link struct {
	adapter
	spares spares

	carriers func(fabric.EndpointOptions) (fabric.Endpoint, error) // see fabric.Carried; nil: there are none

	mu      sync.Mutex // guards the following, for set-up
	regions map[*region]struct{}
	gens    []uint16 // number of uses of each slot of eps

	closed  atomic.Bool
	eps     atomic.Pointer[[]*endpoint] // replaced, never modified; nil where free
	reserve atomic.Int64                // places to add to q, by the owner

	// For the owner only.
	q      softlink.CompQ // completions made here, and those polled outside Poll
	wcs    [chainMax]verbs.WC
	wrs    [chainMax]verbs.SendWR
	rwrs   [chainMax]verbs.RecvWR
	staged int                           // of wrs
	spare  [chainMax * maxSGE]fabric.SGE // lists without empty pieces
	spared int                           // used part of spare
	idle   uint32                        // polls without completion
	refill bool                          // endpoints may lack receives

	splitting int // endpoints with an unfinished split

	// giveBack is the number of places of q that closed endpoints no longer need once their
	// completions have been popped.
	giveBack int
}

// Open opens a link.
func Open(o Options) (*Link, error) {
	l := &Link{regions: map[*region]struct{}{}}
	if err := l.open(o); err != nil {
		return nil, err
	}
	eps := []*endpoint{}
	l.eps.Store(&eps)
	return l, nil
}

// Name implements fabric.Link.
func (l *Link) Name() string { return "ibv" }

// Caps implements fabric.Link.
func (l *Link) Caps() fabric.Caps { return l.caps }

// Choice describes the device, port and GID that the link uses, and the reason.
func (l *Link) Choice() string { return l.choice }

// Close implements fabric.Link.
func (l *Link) Close() error {
	if l.closed.Load() {
		return nil
	}
	var errs []error
	for _, e := range *l.eps.Load() {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	l.mu.Lock()
	l.closed.Store(true)
	open := make([]*region, 0, len(l.regions))
	for r := range l.regions {
		open = append(open, r)
	}
	l.mu.Unlock()
	if len(open) > 0 {
		errs = append(errs, fmt.Errorf("close ibv link: %w: %d, closed now", fabric.ErrRegionsOpen, len(open)))
	}
	for _, r := range open {
		errs = append(errs, r.Close())
	}
	for _, x := range l.spares.opened() {
		errs = append(errs, x.release())
	}
	return errors.Join(append(errs, l.release())...)
}

// guards reports whether a connection is guarded that leaves the device (wire) or stays
// within it.
func (l *Link) guards(wire bool) bool {
	if l.opt.Guard != nil {
		return *l.opt.Guard
	}
	return l.soft && wire
}

// CarryOn implements fabric.Carried.
func (l *Link) CarryOn(by func(fabric.EndpointOptions) (fabric.Endpoint, error)) { l.carriers = by }

package ibv

import (
	"cmp"
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

	// firstCQ is the initial size of the completion queue: six endpoints of default depth.
	firstCQ = 6 * 3 * fabric.DefaultDepth

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
	place
	opt  Options
	caps fabric.Caps
	mtu  verbs.MTU
	soft bool // a software device, rdma_rxe: see the package comment

	noImm     bool // the device has no writes with immediate: letters instead
	noAtomics bool // the device has no atomics: letters instead
	inline    int  // bytes that the device takes inline
	noInline  bool // the device takes too little inline: the payload is copied, see mailbox
	tells     bool // the device tells the next packet that a queue pair expects: endpoints continue
	markers   int  // requests, and receives, besides those of an endpoint, that follow a failed queue pair's

	pd   *verbs.PD
	ch   *verbs.CompChannel
	cq   *verbs.CQ
	epfd int

	mu      sync.Mutex // guards the following, for set-up
	regions map[*region]struct{}
	gens    []uint16 // number of uses of each slot of eps
	cqUsed  int      // entries that endpoints may need

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
	armed  bool
	refill bool // endpoints may lack receives

	splitting int // endpoints with an unfinished split

	// giveBack is the number of places of q that closed endpoints no longer need once their
	// completions have been popped.
	giveBack int
}

// Open opens a link.
func Open(o Options) (*Link, error) {
	p, err := o.open()
	if err != nil {
		return nil, err
	}
	l := &Link{place: *p, opt: o, epfd: -1, regions: map[*region]struct{}{}}
	if err := l.setup(); err != nil {
		return nil, errors.Join(fmt.Errorf("open ibv link on %s: %w", p.ctx.Name(), err), l.release())
	}
	return l, nil
}

func (l *Link) setup() (err error) {
	l.mtu = l.attr.ActiveMTU
	if m := verbs.MTUOf(l.opt.MTU); m != 0 {
		l.mtu = min(l.mtu, m)
	}
	l.opt.MaxReads = cmp.Or(l.opt.MaxReads, DefaultMaxReads)
	l.opt.MaxReads = min(l.opt.MaxReads, l.dev.MaxReadInitiate, l.dev.MaxReadTarget)
	if l.opt.MaxReads < 1 {
		return fmt.Errorf("%w: %w: limits %d to the peer, %d from it", fabric.ErrNotSupported, ErrNoReads, l.dev.MaxReadInitiate, l.dev.MaxReadTarget)
	}
	l.noAtomics = l.dev.AtomicCap == verbs.AtomicNone
	l.soft = l.dev.VendorID == 0xffffff // IB_OPENIB_OUI, of rxe and siw
	if l.pd, err = l.ctx.AllocPD(); err != nil {
		return err
	}
	if l.ch, err = l.ctx.CreateCompChannel(); err != nil {
		return err
	}
	if err := l.createCQ(); err != nil {
		return err
	}
	if err := l.probe(); err != nil {
		return err
	}
	l.chooseGID()
	l.setCaps()
	if l.epfd, err = joinFDs(l.ch.FD(), l.ctx.AsyncFD()); err != nil {
		return err
	}
	eps := []*endpoint{}
	l.eps.Store(&eps)
	return nil
}

// Name implements fabric.Link.
func (l *Link) Name() string { return "ibv" }

// Caps implements fabric.Link.
func (l *Link) Caps() fabric.Caps { return l.caps }

// lacks returns the operations that the device does not have.
func (l *Link) lacks() (x lacks) {
	if l.noImm {
		x |= lacksImm
	}
	if l.noAtomics {
		x |= lacksAtomics
	}
	return x
}

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
	return errors.Join(append(errs, l.release())...)
}

// release releases the resources of setup.
func (l *Link) release() error {
	var errs []error
	if l.epfd >= 0 {
		errs = append(errs, closeFD(l.epfd))
	}
	if l.cq != nil {
		errs = append(errs, l.cq.Close())
	}
	if l.ch != nil {
		errs = append(errs, l.ch.Close())
	}
	if l.pd != nil {
		errs = append(errs, l.pd.Close())
	}
	return errors.Join(append(errs, l.ctx.Close())...)
}

// guards reports whether a connection is guarded that leaves the device (wire) or stays
// within it.
func (l *Link) guards(wire bool) bool {
	if l.opt.Guard != nil {
		return *l.opt.Guard
	}
	return l.soft && wire
}

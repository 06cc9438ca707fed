package ibv

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/fds"
	"github.com/seed33544411/rma/verbs"
)

// firstCQ is the initial size of the completion queue: six endpoints of default depth.
const firstCQ = 6 * 3 * fabric.DefaultDepth

// adapter is an open port of an RDMA device: what the queue pairs of a link need there, and what the device can do.
type adapter struct {
	place
	opt  Options
	caps fabric.Caps
	mtu  verbs.MTU
	soft bool // a software device, rdma_rxe: see the package comment

	noImm     bool        // the device has no writes with immediate: letters instead
	noAtomics bool        // the device has no atomics, or shall not be asked for them: letters instead
	inline    int         // bytes that the device takes inline
	noInline  bool        // the device takes too little inline: the payload is copied, see mailbox
	tells     bool        // the device tells the next packet that a queue pair expects: endpoints continue
	gone      atomic.Bool // the device has vanished or failed for good
	markers   int         // requests, and receives, besides those of an endpoint, that follow a failed queue pair's

	pd    *verbs.PD
	ch    *verbs.CompChannel
	cq    *verbs.CQ
	epfd  int
	armed bool // an event of cq is requested; the owner's

	room struct { // of cq
		sync.Mutex
		used int // entries that endpoints may need
	}
}

// open opens the port.
func (l *adapter) open(o Options) error {
	p, err := o.open()
	if err != nil {
		return err
	}
	l.place, l.opt, l.epfd = *p, o, -1
	if err := l.setup(); err != nil {
		return errors.Join(fmt.Errorf("open ibv link on %s: %w", p.ctx.Name(), err), l.release())
	}
	return nil
}

func (l *adapter) setup() (err error) {
	l.mtu = l.attr.ActiveMTU
	if m := verbs.MTUOf(l.opt.MTU); m != 0 {
		l.mtu = min(l.mtu, m)
	}
	l.opt.MaxReads = cmp.Or(l.opt.MaxReads, DefaultMaxReads)
	l.opt.MaxReads = min(l.opt.MaxReads, l.dev.MaxReadInitiate, l.dev.MaxReadTarget)
	if l.opt.MaxReads < 1 {
		return fmt.Errorf("%w: %w: limits %d to the peer, %d from it", fabric.ErrNotSupported, ErrNoReads, l.dev.MaxReadInitiate, l.dev.MaxReadTarget)
	}
	l.noAtomics = l.dev.AtomicCap == verbs.AtomicNone || l.opt.HostAtomics
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
	l.epfd, err = fds.Join(l.ch.FD(), l.ctx.AsyncFD())
	return err
}

// release releases the resources of setup.
func (l *adapter) release() error {
	var errs []error
	if l.epfd >= 0 {
		errs = append(errs, fds.Close(l.epfd))
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
	return l.unlessGone(errors.Join(append(errs, l.ctx.Close())...))
}

// unlessGone returns the error of releasing resources, which a device that is gone has none of.
func (l *adapter) unlessGone(err error) error {
	if l.gone.Load() {
		return nil
	}
	return err
}

// lacks returns the operations that the device does not have, or shall not be asked for.
func (l *adapter) lacks() (x lacks) {
	if l.noImm {
		x |= lacksImm
	}
	if l.noAtomics {
		x |= lacksAtomics
	}
	return x
}

// active reports whether the port can send. It makes system calls.
func (l *adapter) active() bool {
	a, err := l.ctx.QueryPort(l.port)
	return err == nil && a.State == verbs.PortActive
}

// Usable implements fabric.Fallible. It makes system calls.
func (l *adapter) Usable() error {
	if l.gone.Load() {
		return fmt.Errorf("%w: %s", fabric.ErrDeviceGone, l.ctx.Name())
	}
	a, err := l.ctx.QueryPort(l.port)
	switch {
	case errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENODEV): // so answers a context whose device was removed
		l.gone.Store(true)
		return fmt.Errorf("%w: %s: %w", fabric.ErrDeviceGone, l.ctx.Name(), err)
	case err != nil:
		return err
	case a.State != verbs.PortActive:
		return fmt.Errorf("%s port %d is %v", l.ctx.Name(), l.port, a.State)
	}
	_, err = source(l, l.gid)
	return err
}

// createQP creates a queue pair for that many requests and receives, in INIT.
func (l *adapter) createQP(queue, recv int) (*verbs.QP, error) {
	m := l.markers
	qp, err := l.pd.CreateQP(verbs.QPOptions{SendCQ: l.cq, MaxSendWR: queue + m, MaxRecvWR: recv + m, MaxSendSGE: l.caps.MaxSGE, MaxInline: l.inline})
	if err != nil {
		return nil, err
	}
	access := verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	if l.noAtomics {
		access &^= verbs.AccessRemoteAtomic
	}
	if err := qp.ToInit(l.port, 0, access); err != nil {
		return nil, errors.Join(err, qp.Close())
	}
	return qp, nil
}

// enter makes room in the completion queue for n more entries, and leave gives it back.
func (l *adapter) enter(n int) error {
	l.room.Lock()
	defer l.room.Unlock()
	need := l.room.used + n
	if need > l.cq.Cap() {
		err := fmt.Errorf("the device's limit is %d entries", l.dev.MaxCQE)
		size := min(max(need, 2*l.cq.Cap()), l.dev.MaxCQE)
		if need <= size {
			err = l.cq.Resize(size) // the library locks the queue against Poll meanwhile
		}
		if err != nil {
			return fmt.Errorf("%w: the completion queue has %d entries, %d are needed: %w", ErrTooManyEndpoints, l.cq.Cap(), need, err)
		}
	}
	l.room.used = need
	return nil
}

func (l *adapter) leave(n int) {
	l.room.Lock()
	defer l.room.Unlock()
	l.room.used -= n
}

// arm requests an event of the port's completion queue.
func (l *adapter) arm() error {
	if l.armed {
		return nil
	}
	if err := l.cq.ReqNotify(false); err != nil {
		return fmt.Errorf("arm ibv link: %w", err)
	}
	l.armed = true
	return nil
}

// disarm takes the event of the port's completion queue, if there is one, and reports whether something else
// has happened.
func (l *adapter) disarm() (happened bool) {
	ready, n := readyFDs(l.epfd)
	for _, fd := range ready[:n] {
		if fd == l.ctx.AsyncFD() {
			happened = true
			continue
		}
		if fd != l.ch.FD() {
			continue // of a spare port
		}
		if q, err := l.ch.Event(); err != nil || q != nil {
			l.armed = false
		}
	}
	return happened
}

package ibv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/fds"
	"github.com/seed33544411/rma/verbs"
)

// A link may have spare ports (Options.Spares), on other devices perhaps. An endpoint that cannot be connected
// again over the port that it uses continues over another one. All that knows the memory of the link, protocols
// and applications on both sides, knows the keys of the link's own device, and goes on using them: they are
// names. The keys of the device that the endpoint uses take their place when its requests are posted: for local
// memory those of a twin of each region; for the peer's memory those that it has sent with its letter.

const (
	// MaxSpares bounds Options.Spares: keys of memory have room for four rails.
	MaxSpares = 3

	// maxPorts bounds the ports of an endpoint, the link's own included.
	maxPorts = 1 + MaxSpares

	// maxNames bounds the keys of a side, and letterNames those in one letter.
	maxNames    = 1 << 16
	letterNames = (fabric.MaxLetter - resumeSize) / nameSize

	nameSize = 8
)

var (
	errApart       = fmt.Errorf("%w: atomics over two devices that do not exclude each other's", fabric.ErrNotSupported)
	errUnlike      = fmt.Errorf("%w: another port that can do less than the link's own", fabric.ErrNotSupported)
	errManyRegions = fmt.Errorf("%w: more than %d regions to name for another port", fabric.ErrResources, maxNames)
	errName        = fmt.Errorf("%w: memory that the peer has registered since the connection uses another port", fabric.ErrFlushed)
	errHome        = fmt.Errorf("%w: the connection's own port is active again", fabric.ErrFlushed)
	errPortDown    = fmt.Errorf("%w: the port is down", fabric.ErrFlushed)
)

// name is the key of one of the peer's regions, and what it is at the device of another port.
type name struct{ key, there uint32 }

func appendNames(b []byte, names []name) []byte {
	for _, x := range names {
		b = binary.LittleEndian.AppendUint32(b, x.key)
		b = binary.LittleEndian.AppendUint32(b, x.there)
	}
	return b
}

func parseNames(b []byte) ([]name, bool) {
	if len(b)%nameSize != 0 {
		return nil, false
	}
	names := make([]name, len(b)/nameSize)
	for i := range names {
		names[i] = name{binary.LittleEndian.Uint32(b[i*nameSize:]), binary.LittleEndian.Uint32(b[i*nameSize+4:])}
	}
	return names, true
}

// spares are the spare ports of a link.
type spares struct {
	opening sync.Mutex
	open    atomic.Pointer[[]*spare] // replaced, never modified
	list    []verbs.SGE              // for the pieces of a chain; the owner's
}

// opened returns the spare ports that are open. Any goroutine.
func (p *spares) opened() []*spare {
	if s := p.open.Load(); s != nil {
		return *s
	}
	return nil
}

// spare is an open spare port.
type spare struct {
	adapter
	number  int  // in Options.Spares, from 1
	atomics bool // exclude those of the link's own device

	mu    sync.RWMutex
	twins map[uint32]twin // by the local key of the region
}

// twin is a region, and its memory at a spare port.
type twin struct {
	own  *region
	here *verbs.MR
}

// sparePort returns spare port i, from 1, and opens it if it is not open, which may take a second. Not the owner.
func (l *Link) sparePort(i int) (*spare, error) {
	p := &l.spares
	p.opening.Lock()
	defer p.opening.Unlock()
	for _, x := range p.opened() {
		if x.number == i {
			return x, nil
		}
	}
	at := l.opt.Spares[i-1]
	x := &spare{number: i, twins: map[uint32]twin{}}
	if err := x.open(Options{Device: at.Device, Port: at.Port, MTU: l.opt.MTU, MaxReads: l.opt.MaxReads, LastByteLast: l.opt.LastByteLast, Guard: l.opt.Guard, HostAtomics: l.opt.HostAtomics, Resume: true}); err != nil {
		return nil, err
	}
	if err := x.join(l); err != nil {
		return nil, errors.Join(err, x.release())
	}
	return x, nil
}

// join makes x a spare port of l, with all regions of l.
func (x *spare) join(l *Link) error {
	if x.soft != l.soft || x.lacks()&^l.lacks() != 0 || !x.tells || x.caps.MaxSGE < l.caps.MaxSGE || x.inline < l.inline ||
		x.caps.MaxMessage < l.caps.MaxMessage || !x.caps.LastByteLast && l.caps.LastByteLast {
		return fmt.Errorf("%w: %s", errUnlike, x.choice)
	}
	x.atomics = l.soft || l.noAtomics || x.ctx.Name() == l.ctx.Name() || x.dev.AtomicCap == verbs.AtomicGlobal && l.dev.AtomicCap == verbs.AtomicGlobal
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	for r := range l.regions {
		err = errors.Join(err, x.add(r))
	}
	if err = errors.Join(err, fds.Add(l.epfd, x.epfd)); err != nil {
		for _, t := range x.twins {
			err = errors.Join(err, t.here.Close())
		}
		return err
	}
	all := append(append([]*spare{}, l.spares.opened()...), x)
	l.spares.open.Store(&all)
	return nil
}

// now returns the GID to send from: the one that was found when the port was opened, unless the table has another
// first one since.
func (x *spare) now() (verbs.GIDEntry, error) {
	table, err := x.ctx.GIDs(x.port)
	if err != nil {
		return x.gid, err
	}
	c, err := verbs.ChooseGID(table, -1)
	switch {
	case err != nil:
		return x.gid, fmt.Errorf("%s port %d: %w", x.ctx.Name(), x.port, err)
	case c.Chosen.GID == x.candidates[0].GID || c.Chosen.Index > 255:
		return x.gid, nil
	}
	return c.Chosen, nil
}

// add registers the memory of r, unless the device is gone. Called with Link.mu of the link's own port held.
func (x *spare) add(r *region) error {
	t, err := x.pin(r.mem, r.access)
	if err != nil {
		return x.unlessGone(err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.twins[r.lkey] = twin{r, t}
	return nil
}

// remove undoes add, if there was one. Called with Link.mu of the link's own port held.
func (x *spare) remove(r *region) error {
	t, is := x.twins[r.lkey] // changed under Link.mu only
	if !is {
		return nil
	}
	if err := x.unlessGone(t.here.Close()); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.twins, r.lkey)
	return nil
}

// names returns the keys by which the peer reaches the regions over this port.
func (x *spare) names() (names []name, err error) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, t := range x.twins {
		if t.own.access&^fabric.AccessLocalWrite != 0 {
			names = append(names, name{t.own.key.RKey, t.here.RKey()})
		}
	}
	if len(names) > maxNames {
		return nil, errManyRegions
	}
	return names, nil
}

// away says when an endpoint on a spare port tries to return to the link's own: after backPause, or
// silentPause if nobody answered there, and twice as long each time, up to maxPause. A port that is active may still reach nobody, which costs a
// PeerTimeout to find out.
type away struct {
	until time.Time
	pause time.Duration // of the last time; kept until the endpoint was home for maxPause
	home  time.Time     // since
}

const backPause, silentPause, maxTrialPause, maxPause = time.Second, 16 * time.Second, time.Minute, 10 * time.Minute

// arrived says that the endpoint uses port to, after port from was lost because of why.
func (a *away) arrived(from, to int, why error) {
	now := time.Now()
	switch {
	case to == 0 && from != 0:
		a.home = now
	case to != 0 && from == 0:
		if now.Sub(a.home) > maxPause {
			a.pause = 0
		}
		least := backPause
		if errors.Is(why, fabric.ErrPeerGone) {
			least = silentPause
		}
		a.pause = min(max(2*a.pause, least), maxPause)
		a.until = now.Add(a.pause)
	}
}

// carried says that a carrier took over because of why: its port is tried while the carrier goes on, which costs little.
func (a *away) carried(why error) {
	a.arrived(0, 1, why)
	a.until = time.Now().Add(min(a.pause, maxTrialPause))
}

// again says that the port was tried in vain.
func (a *away) again() {
	a.pause = min(2*a.pause, maxPause)
	a.until = time.Now().Add(min(a.pause, maxTrialPause))
}

// returns reports whether it is time to return, and the link's own port is active.
func (r *resumption) returns() bool {
	if time.Now().Before(r.away.until) {
		return false
	}
	r.away.until = time.Now().Add(r.away.pause)
	return r.e.l.active()
}

// unnamed returns a key in wrs that the peer has not named at the port in use, and was not asked for before.
// Hot path, of endpoints on a spare port.
func (r *resumption) unnamed(wrs []verbs.SendWR) (key uint32, is bool) {
	for i := range wrs {
		if w := &wrs[i]; named(w) && w.RKey != r.missing {
			if _, ok := r.names[w.RKey]; !ok {
				return w.RKey, true
			}
		}
	}
	return 0, false
}

// named reports whether w names memory of the peer.
func named(w *verbs.SendWR) bool {
	return len(w.SGL) > 0 && w.Op != verbs.OpSend && w.Op != verbs.OpSendWithImm
}

// translate puts the keys of the port in use into requests, which it modifies. Keys that nobody knows stay:
// the device refuses them. If the peer must name one first, it suspends the endpoint instead, and returns false.
// Hot path, of endpoints on a spare port.
func (r *resumption) translate(wrs []verbs.SendWR) bool {
	if key, is := r.unnamed(wrs); is {
		r.missing = key
		suspend(r.e, errName)
		return false
	}
	x, p := r.e.over, &r.e.l.spares
	if p.list == nil {
		p.list = make([]verbs.SGE, 0, chainMax*maxSGE)
	}
	list := p.list[:0]
	x.mu.RLock()
	defer x.mu.RUnlock()
	for i := range wrs {
		w := &wrs[i]
		if named(w) {
			if key, is := r.names[w.RKey]; is {
				w.RKey = key
			}
		}
		n := len(list)
		for _, s := range w.SGL {
			if t, is := x.twins[s.LKey]; is {
				s.LKey = t.here.LKey()
			}
			list = append(list, s)
		}
		w.SGL = list[n:len(list):len(list)]
	}
	return true
}

// apart returns the number of requests of wrs before the first atomic that must not be posted over the port
// that e uses. If there are none, e ends.
func apart(e *endpoint, wrs []fabric.WR) (n int, err error) {
	for n < len(wrs) && !isAtomic(wrs[n].Op) {
		n++
	}
	if n > 0 || len(wrs) == 0 {
		return n, nil
	}
	e.setErr(fmt.Errorf("%w: %w", fabric.ErrDown, errApart))
	finish(e, fabric.Completion{Status: fabric.StatusUnknown})
	return 0, e.Err()
}

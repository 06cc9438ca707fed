package fabrictest

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
	"github.com/seed33544411/rma/fabric/sim"
)

func at(addr uint64) uint64 { return softlink.Load64(addr) }
func put(addr, v uint64)    { softlink.Store64(addr, v) }

// joined records which endpoint connected to which address, for mutants that act on the
// peer.
var joined struct {
	sync.Mutex
	by map[string]*mutEP // owner of an address
}

// remember is a connect hook that makes the endpoint known to its peer's mutant.
func remember(e *mutEP, ctx context.Context, addr []byte) error {
	joined.Lock()
	if joined.by == nil {
		joined.by = map[string]*mutEP{}
	}
	joined.by[string(addr)] = e // the owner of this address is the peer
	joined.Unlock()
	return e.Endpoint.Connect(ctx, addr)
}

// peers returns the endpoint that connected to e's address.
func peers(e *mutEP) []*mutEP {
	joined.Lock()
	defer joined.Unlock()
	if p := joined.by[string(e.Address())]; p != nil {
		return []*mutEP{p}
	}
	return nil
}

// delayed returns a hook that holds a matching request back for some polls.
func delayed(match func(e *mutEP, w *fabric.WR) bool) hooks {
	return hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			for i := range ws {
				if len(e.held) == 0 && match(e, &ws[i]) {
					lazy(e, clone(ws[i : i+1])[0])
					continue
				}
				if n, err := e.Endpoint.Post(ws[i : i+1]); n == 0 || err != nil {
					return i, err
				}
			}
			return len(ws), nil
		},
		poll: pollLazily,
	}
}

var orderMutants = []mutant{
	{name: "a write is overtaken by the next", by: []string{"WriteAfterWrite"},
		hooks: delayed(func(_ *mutEP, w *fabric.WR) bool { return isWrite(w) && w.Len() > 100 })},
	{name: "the flag of a write comes first", by: []string{"LastByteLast"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			w := clone(ws)[0]
			if n := w.Len(); len(ws) != 1 || !isWrite(&w) || len(w.Local) != 1 || n < 100 || n%8 != 0 {
				return e.Endpoint.Post(ws)
			}
			tail := w
			p := w.Local[0]
			tail.Local = []fabric.SGE{{Addr: p.Addr + uint64(p.Len) - 8, Len: 8, LKey: p.LKey}}
			tail.RemoteAddr += uint64(p.Len) - 8
			w.Local[0].Len -= 8
			if n, err := e.Endpoint.Post([]fabric.WR{tail}); n == 0 || err != nil {
				return n, err
			}
			lazy(e, w)
			return 1, nil
		},
		poll: pollLazily}},
	{name: "no order inside a write, though promised", by: []string{"LastByteLast"},
		opt:   sim.Options{Caps: noLast(), Pieces: 15},
		hooks: hooks{caps: func(c *fabric.Caps) { c.LastByteLast = true }}},
	{name: "an old value comes back", by: []string{"WordNeverGoesBack"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			n, err := e.Endpoint.Post(ws)
			if n == 1 && isWrite(&ws[0]) && ws[0].Len() == 8 {
				if e.n++; e.n%16 == 15 {
					old := clone(ws)
					old[0].Flags = fabric.FlagInline
					v := at(ws[0].Local[0].Addr)
					put(ws[0].Local[0].Addr, v-5)
					_, _ = e.Endpoint.Post(old)
					put(ws[0].Local[0].Addr, v)
				}
			}
			return n, err
		}}},
	{name: "a read overtakes a write", by: []string{"ReadAfterWrite", "Model"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			ws = clone(ws)
			for i := 1; i < len(ws); i++ {
				if isRead(&ws[i]) && isWrite(&ws[i-1]) {
					ws[i], ws[i-1] = ws[i-1], ws[i]
				}
			}
			return e.Endpoint.Post(ws)
		}}},
	{name: "an atomic overtakes a write", by: []string{"AtomicsInOrder", "Model"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			ws = clone(ws)
			for i := 1; i < len(ws); i++ {
				if isAtomic(&ws[i]) && isWrite(&ws[i-1]) {
					ws[i], ws[i-1] = ws[i-1], ws[i]
				}
			}
			return e.Endpoint.Post(ws)
		}}},
	{name: "fences are ignored", by: []string{"Fence", "AtomicsInOrder", "Model"}, opt: sim.Options{Overtake: 0.7},
		hooks: each(func(_ *mutEP, w *fabric.WR) { w.Flags &^= fabric.FlagFence })},
	{name: "unsignalled writes are dropped now and then", by: []string{"UnsignaledAreDone", "UnsignaledOnly"},
		hooks: execute(func(w *fabric.WR) bool {
			return isWrite(w) && w.Flags&fabric.FlagSignaled == 0 && w.RemoteAddr/8%13 == 5
		}, func(*mutEP, *fabric.WR) {})},
}

// lazy posts w after some polls of its link.
func lazy(e *mutEP, w fabric.WR) {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	e.held = append(e.held, w)
	e.n = 0
}

func pollLazily(l *mutLink, cs []fabric.Completion) int {
	l.mu.Lock()
	for _, e := range l.eps {
		if e.n++; len(e.held) > 0 && e.n > 20 {
			n, _ := e.Endpoint.Post(e.held)
			e.held = e.held[n:]
		}
	}
	l.mu.Unlock()
	return l.Link.Poll(cs)
}

func noLast() fabric.Caps {
	c := sim.CapsLike("sim")
	c.LastByteLast = false
	return c
}

// widened registers one byte more on each side.
func widened(l *mutLink, mem []byte, acc fabric.Access) (fabric.Region, error) {
	a := fabric.Addr(mem)
	r, err := l.Link.Register(fabric.BytesAt(a-8, len(mem)+16), acc)
	if err != nil {
		return nil, err
	}
	return &narrowRegion{Region: r, mem: mem}, nil
}

// narrowRegion claims to be smaller than what is registered.
type narrowRegion struct {
	fabric.Region
	mem []byte
}

func (r *narrowRegion) Bytes() []byte { return r.mem }
func (r *narrowRegion) Addr() uint64  { return fabric.Addr(r.mem) }
func (r *narrowRegion) Key() fabric.RemoteKey {
	return fabric.RemoteKey{Addr: fabric.Addr(r.mem), Len: uint64(len(r.mem)), RKey: r.Region.Key().RKey}
}

// immortal is a region that Close leaves in place.
type immortal struct{ fabric.Region }

func (immortal) Close() error { return nil }

// forgiving closes the link and does not report open regions.
func forgiving(l *mutLink) error { _ = l.Link.Close(); return nil }

// lenient executes nothing of a matching request but completes it.
func lenient(match func(w *fabric.WR) bool) hooks { return execute(match, func(*mutEP, *fabric.WR) {}) }

var accessMutants = []mutant{
	{name: "bounds wrong by a few bytes", by: []string{"RemoteAccess", "LocalAccess"}, hooks: hooks{register: widened}},
	{name: "rights are ignored", by: []string{"RemoteAccess"}, hooks: hooks{
		register: func(l *mutLink, mem []byte, _ fabric.Access) (fabric.Region, error) {
			return l.Link.Register(mem, fabric.AccessAll)
		}}},
	{name: "local writing is always allowed", by: []string{"LocalAccess"}, hooks: hooks{
		register: func(l *mutLink, mem []byte, acc fabric.Access) (fabric.Region, error) {
			return l.Link.Register(mem, acc|fabric.AccessLocalWrite)
		}}},
	{name: "closed regions stay reachable", by: []string{"RemoteAccess", "LocalAccess"}, hooks: hooks{
		register: func(l *mutLink, mem []byte, acc fabric.Access) (fabric.Region, error) {
			r, err := l.Link.Register(mem, acc)
			return immortal{r}, err
		}, close: forgiving}},
	{name: "wrapping addresses are swallowed", by: []string{"RemoteAccess"},
		hooks: lenient(func(w *fabric.WR) bool { return w.RemoteAddr > math.MaxUint64-100 })},
	{name: "address 0 is swallowed", by: []string{"RemoteAccess"},
		hooks: lenient(func(w *fabric.WR) bool { return w.RemoteAddr == 0 && w.RKey != 0 && w.Len() > 0 })},
	{name: "refused with the wrong status", by: []string{"RemoteAccess", "RegionClose"},
		hooks: reported(func(_ *mutLink, c *fabric.Completion) bool {
			if c.Status == fabric.StatusRemoteAccess {
				c.Status = fabric.StatusRemoteOp
			}
			return true
		})},
	{name: "an unsignalled failure is not reported", by: []string{"RemoteAccess"},
		hooks: hooks{post: func(e *mutEP, ws []fabric.WR) (int, error) {
			ws = clone(ws)
			for i := range ws {
				if ws[i].Flags&fabric.FlagSignaled == 0 {
					ws[i].ID = 1 << 63
				}
			}
			return e.Endpoint.Post(ws)
		}, poll: reported(func(_ *mutLink, c *fabric.Completion) bool { return c.ID != 1<<63 }).poll}},
	{name: "what is behind a failure is reported as done", by: []string{"RemoteAccess", "LocalAccess", "RegionClose"},
		hooks: reported(func(_ *mutLink, c *fabric.Completion) bool {
			if c.Status == fabric.StatusFlushed {
				c.Status = fabric.StatusOK
			}
			return true
		})},
	{name: "what is behind a failure is done", by: []string{"RemoteAccess"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			if n := len(ws); n > 1 && isWrite(&ws[n-1]) && ws[n-1].Len() == 50 {
				last := ws[n-1]
				for i, b := range fabric.BytesAt(last.Local[0].Addr, 50) {
					fabric.BytesAt(last.RemoteAddr, 50)[i] = b
				}
			}
			return e.Endpoint.Post(ws)
		}}},
	{name: "a failure is not followed by OpDown", by: []string{"RemoteAccess", "IdlePeerGone", "PeerCloses", "WakeOnDown"},
		hooks: reported(func(_ *mutLink, c *fabric.Completion) bool { return c.Op != fabric.OpDown })},
	{name: "OpDown twice", by: []string{"RemoteAccess", "IdlePeerGone", "PeerCloses", "PeerDies"},
		hooks: reported(func(l *mutLink, c *fabric.Completion) bool {
			if c.Op == fabric.OpDown {
				l.extra = append(l.extra, *c)
			}
			return true
		})},
	{name: "Post to a failed endpoint succeeds", by: []string{"RemoteAccess", "LocalAccess", "PeerCloses", "PeerDies", "IdlePeerGone", "CloseFlushes"},
		hooks: hooks{post: func(e *mutEP, ws []fabric.WR) (int, error) {
			n, err := e.Endpoint.Post(ws)
			if errors.Is(err, fabric.ErrDown) {
				return len(ws), nil
			}
			return n, err
		}}},
	{name: "a failure takes every endpoint down", by: []string{"RemoteAccess"},
		hooks: hooks{poll: func(l *mutLink, cs []fabric.Completion) int {
			n := l.Link.Poll(cs)
			for _, c := range cs[:n] {
				if c.Status == fabric.StatusRemoteAccess {
					for _, e := range slices.Clone(l.eps) {
						_ = e.Endpoint.Close()
					}
				}
			}
			return n
		}}},
	{name: "refused reads store zeros", by: []string{"RemoteAccess"},
		hooks: hooks{post: func(e *mutEP, ws []fabric.WR) (int, error) {
			for _, w := range ws {
				if isRead(&w) && len(w.Local) == 2 {
					clear(fabric.BytesAt(w.Local[0].Addr, int(w.Local[0].Len)))
				}
			}
			return e.Endpoint.Post(ws)
		}}},
	{name: "keys are reduced to their index", by: []string{"RemoteAccess"},
		hooks: looseKeys()},
}

// looseKeys accepts any key for memory that the first region of a link covers.
func looseKeys() hooks {
	var mu sync.Mutex
	var link *mutLink // of the case that runs
	var first fabric.RemoteKey
	return hooks{
		register: func(l *mutLink, mem []byte, acc fabric.Access) (fabric.Region, error) {
			r, err := l.Link.Register(mem, acc)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && acc == fabric.AccessAll && l != link {
				link, first = l, r.Key()
			}
			return r, err
		},
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			ws = clone(ws)
			mu.Lock()
			for i := range ws {
				if ws[i].RemoteAddr-first.Addr < first.Len {
					ws[i].RKey = first.RKey
				}
			}
			mu.Unlock()
			return e.Endpoint.Post(ws)
		},
	}
}

package shm

import (
	"math/bits"
	"sync/atomic"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bulk"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/topo"
)

// copies holds the sizes from which requests are copied by each method. The owner reads
// from and plan for each request; the rest is guarded by link.mu.
type copies struct {
	from atomic.Uint64 // the least size for which plan matters
	plan atomic.Pointer[bulk.Plan]

	base   bulk.Plan // for two users of the cache
	source string
	cache  topo.Cache
	users  int
}

// initCopies computes the switch points from the host's caches and the options.
func (l *link) initCopies() {
	c := &l.copies
	host, on := topo.Local(), cpu.Allowed()
	c.cache, _ = host.Shared(on)
	c.base, c.source, c.users = bulk.Default(host, on, 2), "caches", 1
	l.setPlan()
}

// setPlan combines base, the number of users and the forced sizes. l.mu is held, unless l
// is not yet in use.
func (l *link) setPlan() {
	c := &l.copies
	p := c.base
	if users := uint64(min(c.users, max(c.cache.CPUs.Len(), 2))); users > 2 && p.Stream != bulk.Never {
		p.Stream = max(2*p.Stream/users, bulk.MinStream)
	}
	p.Stream = forced(l.opts.StreamFrom, p.Stream)
	p.String = forced(l.opts.StringFrom, p.String)
	c.plan.Store(&p)
	c.from.Store(min(p.Stream, p.String))
}

// forced resolves a size option: 0 means auto, negative means never.
func forced(option int64, auto uint64) uint64 {
	switch {
	case option < 0:
		return bulk.Never
	case option > 0:
		return uint64(option)
	}
	return auto
}

// Copies implements fabric.CopyTuner.
func (l *link) Copies() fabric.CopyChoice {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &l.copies
	choice := fabric.CopyChoice{
		Plan: *c.plan.Load(), Kernel: bulk.Kernel(), Source: c.source, Cache: c.cache.Size, Users: c.users,
	}
	switch {
	case l.opts.StreamFrom != 0 && l.opts.StringFrom != 0:
		choice.Source = "forced"
	case l.opts.StreamFrom != 0 || l.opts.StringFrom != 0:
		choice.Source += ", one of them forced"
	}
	return choice
}

// SetCopies implements fabric.CopyTuner.
func (l *link) SetCopies(plan bulk.Plan, source string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.copies.base, l.copies.source = plan, source
	l.setPlan()
}

// countUsers counts the processes that use the same largest cache: this one, and the peers
// that may run on its processors or whose processors are unknown. l.mu is held.
func (l *link) countUsers() {
	users := 1
	for ep := range l.all {
		if !ep.isUp() { // first: until then Connect owns the fields that it sets
			continue
		}
		known := ep.cpus.Len() > 0 && l.copies.cache.CPUs.Len() > 0
		if !known || ep.cpus.Meets(l.copies.cache.CPUs) {
			users++
		}
	}
	if users != l.copies.users {
		l.copies.users = users
		l.setPlan()
	}
}

// publishCPUs publishes the processors that this process may run on, once. If one of them has
// too high a number it publishes nothing.
func (h *ctlHeader) publishCPUs(on cpu.Set) {
	cpus := on.CPUs()
	if n := len(cpus); n == 0 || cpus[n-1] >= maxCPUs {
		return
	}
	for _, c := range cpus {
		w := &h.cpus[c/64]
		w.Store(w.Load() | 1<<(c%64))
	}
}

// allowedCPUs returns the processors that the peer has published. A false value
// makes only its own copies slower.
func (h *ctlHeader) allowedCPUs() cpu.Set {
	var cpus []int
	for i := range h.cpus {
		for w := h.cpus[i].Load(); w != 0; w &= w - 1 {
			cpus = append(cpus, 64*i+bits.TrailingZeros64(w))
		}
	}
	return cpu.Of(cpus...)
}

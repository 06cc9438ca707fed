package coll

import (
	"slices"
	"sync"
)

// maxPlans bounds the schedules that are kept, and maxPlanBytes their memory.
const maxPlans, maxPlanBytes = 64, 16 << 20

// planKey is what schedules depend on.
type planKey struct {
	call     call
	meet     bool
	most     int
	division uint64 // hash of the division of the memory, which differs in place
}

// division returns a hash of names of memory.
func division(lists ...[]mem) uint64 {
	h := uint64(14695981039346656037) // FNV-1a, by words
	for _, ms := range lists {
		for _, m := range ms {
			h = (h ^ uint64(m.buf)) * 1099511628211
			h = (h ^ uint64(m.off)) * 1099511628211
			h = (h ^ uint64(m.n)) * 1099511628211
		}
		h = (h ^ uint64(len(ms))) * 1099511628211
	}
	return h
}

// plan is a schedule that is kept for calls that are alike.
type plan struct {
	send, recv []mem
	s          *schedule
}

// plans are the schedules that a team keeps, until it ends.
type plans struct {
	mu    sync.Mutex
	kept  map[planKey]*plan
	bytes int // memory of kept
	ended bool
}

// schedule returns the schedule of a problem by an algorithm.
func (ps *plans) schedule(pr *problem, alg algorithm) *schedule {
	pr.alg = alg
	k := planKey{pr.call, pr.meet, pr.most, division(pr.send, pr.recv)}
	ps.mu.Lock()
	p := ps.kept[k]
	ps.mu.Unlock()
	if p != nil && slices.Equal(p.send, pr.send) && slices.Equal(p.recv, pr.recv) {
		return p.s
	}
	p = &plan{slices.Clone(pr.send), slices.Clone(pr.recv), build(pr)}
	if alg == algFlags {
		route(pr, p.s)
	}
	n := p.bytes()
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.ended || n > maxPlanBytes {
		return p.s
	}
	ps.forget(k)
	for old := range ps.kept { // any
		if len(ps.kept) < maxPlans && ps.bytes+n <= maxPlanBytes {
			break
		}
		ps.forget(old)
	}
	if ps.kept == nil {
		ps.kept = map[planKey]*plan{}
	}
	ps.kept[k] = p
	ps.bytes += n
	return p.s
}

// forget removes a schedule, if there is one. ps.mu is held.
func (ps *plans) forget(k planKey) {
	if p := ps.kept[k]; p != nil {
		ps.bytes -= p.bytes()
		delete(ps.kept, k)
	}
}

// end removes all schedules; later ones are not kept.
func (ps *plans) end() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.kept, ps.bytes, ps.ended = nil, 0, true
}

// bytes returns about the memory of p.
func (p *plan) bytes() int {
	n := 24*(len(p.send)+len(p.recv)) + 4*len(p.s.first) + 12*len(p.s.expected)
	for i := range p.s.steps {
		n += stepBytes + 4*cap(p.s.steps[i].next)
	}
	return n
}

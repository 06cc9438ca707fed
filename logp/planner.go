package logp

import (
	"cmp"
	"fmt"
	"math/bits"
	"sync/atomic"
)

// PlannerConfig configures a Planner. The zero value is usable.
type PlannerConfig struct {
	Policy Policy
	// Shapes is the number of batch shapes whose plans are cached. Zero means 128: the
	// steady state of a program repeats a handful for each peer. Why not more: finding one
	// then misses the processor's caches, which costs as much as planning. Negative caches
	// none.
	Shapes int

	// CacheAfter is the number of plans after which the cache is allocated, of 33 KB for 128
	// shapes when it is empty: a planner that is seldom asked needs none.
	CacheAfter int

	// Margin is the fraction by which a plan of several modes must be better than the best
	// single mode. Its predicted time adds the errors of two modes, and fits to whole
	// batches are about one mode at a time. Zero means 0.1, the error of calibrated
	// predictions; negative means that any gain counts.
	Margin float64
}

// maxCached is the largest batch whose plan is cached: 128 such shapes take about 1 MiB.
const maxCached = 256

// Planner computes plans for one direction of one link, and caches them by batch shape. It
// belongs to one goroutine.
type Planner struct {
	policy Policy
	margin float64 // of plans of several modes
	p      Params
	gen    uint64 // of p: plans of earlier parameters are not used
	pr     prices

	lazy    int // plans before the cache is allocated, and its sets
	sets    int
	ways    []shape // two for each set
	recent  []uint8 // the way of each set that was used last
	scratch shape   // for shapes that are not cached

	search *search // nil: borrowed from searches for each plan
}

// searches holds scratch memory that no planner is using. A planner needs it only while it
// plans a shape that is not cached, but a program has a planner for each peer. There are as
// many as threads that usually plan at once; more are left to the garbage collector.
var searches [4]atomic.Pointer[search]

// borrow returns scratch memory, to be given back.
func borrow() *search {
	for i := range searches {
		if s := searches[i].Swap(nil); s != nil {
			return s
		}
	}
	return new(search)
}

func (s *search) giveBack() {
	for i := range searches {
		if searches[i].CompareAndSwap(nil, s) {
			return
		}
	}
}

// shape is a batch and its plan.
type shape struct {
	gen      uint64 // 0: empty
	hash     uint64
	messages []Message
	limits   Limits
	wait     [NumModes]float64
	plan     Plan
}

// NewPlanner returns a planner. A nil cfg means defaults. Errors wrap ErrParams.
func NewPlanner(p *Params, cfg *PlannerConfig) (*Planner, error) {
	if cfg == nil {
		cfg = &PlannerConfig{}
	}
	if err := cfg.Policy.Validate(); err != nil {
		return nil, err
	}
	pl := &Planner{policy: cfg.Policy, margin: max(cfg.Margin, tie)}
	if cfg.Margin == 0 {
		pl.margin = noise
	}
	pl.policy.Table = append([]Rule(nil), cfg.Policy.Table...)
	n := cfg.Shapes
	n = cmp.Or(n, 128)
	if n > 1<<16 {
		return nil, fmt.Errorf("%w: cache of %d shapes, at most %d", ErrParams, n, 1<<16)
	}
	if n > 0 {
		pl.sets = 1 << bits.Len(uint(n-1)/2)
		if pl.lazy = cfg.CacheAfter; pl.lazy <= 0 {
			pl.cache()
		}
	}
	return pl, pl.SetParams(p)
}

// cache allocates the cache.
func (pl *Planner) cache() {
	pl.ways, pl.recent = make([]shape, 2*pl.sets), make([]uint8, pl.sets)
}

// SetParams makes later plans use p, which is copied, and clears the cache. It allocates:
// call it when parameters have changed, not per batch. Errors wrap ErrParams and change
// nothing.
func (pl *Planner) SetParams(p *Params) error {
	if err := p.Validate(); err != nil {
		return err
	}
	pl.p = *p
	pl.gen++
	pl.pr.set(&pl.p)
	return nil
}

// SetPolicy makes later plans follow o, which is copied, and clears the cache. Errors wrap
// ErrParams and change nothing.
func (pl *Planner) SetPolicy(o Policy) error {
	if err := o.Validate(); err != nil {
		return err
	}
	pl.policy = o
	pl.policy.Table = append([]Rule(nil), o.Table...)
	pl.gen++
	return nil
}

// Params returns the parameters in use.
func (pl *Planner) Params() Params { return pl.p }

// Plan returns the cheapest partition of b that it finds. It is never predicted slower than
// the best single mode, and urgent messages are eager and first if an eager message can
// hold them. The plan belongs to the planner and is valid until the next call of Plan; b is
// not kept. Waits are rounded up by up to 25 % (see Batch.Wait). Errors wrap ErrBatch, or
// ErrInfeasible if no mode can carry a message. A repeated shape does not allocate.
func (pl *Planner) Plan(b *Batch) (*Plan, error) {
	var wait [NumModes]float64
	for m, w := range b.Wait {
		if w != 0 {
			wait[m] = coarse(w)
		}
	}
	if pl.lazy > 0 {
		if pl.lazy--; pl.lazy == 0 {
			pl.cache()
		}
	}
	h := hash(b.Messages)
	s := &pl.scratch
	if len(b.Messages) <= maxCached && len(pl.ways) > 0 {
		set := h & uint64(len(pl.recent)-1)
		ways := (*[2]shape)(pl.ways[2*set:])
		for w := range ways {
			if ways[w].is(pl.gen, h, b, &wait) {
				pl.recent[set] = uint8(w)
				return &ways[w].plan, nil
			}
		}
		w := 1 - pl.recent[set]
		pl.recent[set] = w
		s = &ways[w]
	}
	return pl.fill(s, h, b, &wait)
}

// is reports whether s is the shape of b.
func (s *shape) is(gen, h uint64, b *Batch, wait *[NumModes]float64) bool {
	return s.hash == h && s.gen == gen && s.wait == *wait && s.limits == b.Limits && same(s.messages, b.Messages)
}

// fill plans b into s.
func (pl *Planner) fill(s *shape, h uint64, b *Batch, wait *[NumModes]float64) (*Plan, error) {
	s.gen = 0 // in case of an error
	if err := b.Validate(); err != nil {
		return nil, err
	}
	s.hash, s.limits, s.wait = h, b.Limits, *wait
	s.messages = append(s.messages[:0], b.Messages...)
	rounded := Batch{Messages: s.messages, Limits: b.Limits, Wait: *wait}
	if pl.search == nil {
		pl.search = borrow()
		defer func() {
			pl.search.giveBack()
			pl.search = nil
		}()
	}
	if err := pl.plan(&rounded, &s.plan); err != nil {
		return nil, err
	}
	s.gen = pl.gen
	return &s.plan, nil
}

// Single returns the mode of all of b if it is sent in one mode: the forced one or the
// cheapest. Waits are ignored. Errors are those of Plan, and ErrParams under a table.
func (pl *Planner) Single(b *Batch) (Mode, error) {
	if len(pl.policy.Table) > 0 && !pl.policy.Forced {
		return 0, fmt.Errorf("%w: a table decides message by message", ErrParams)
	}
	if err := b.Validate(); err != nil {
		return 0, err
	}
	if pl.policy.Forced {
		if _, err := pl.p.Cost(b, pl.policy.Mode); err == nil {
			return pl.policy.Mode, nil
		}
	}
	d, err := pl.p.Choose(b)
	return d.Mode, err
}

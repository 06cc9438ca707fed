package logp

import "math"

// plan makes the plan of a valid batch.
func (pl *Planner) plan(b *Batch, out *Plan) error {
	n := len(b.Messages)
	if n == 0 {
		out.reset(0, WhyCheapest)
		return nil
	}
	s, r := &pl.search, &pl.pr
	if err := s.prepare(r, b); err != nil {
		return err
	}
	if !pl.policy.free() {
		pl.byPolicy(b, out)
		return nil
	}
	var base float64
	var used ModeSet
	for _, i := range s.all[:s.urge] {
		base += s.items[i].e
		used = used.With(Eager)
	}
	if len(s.ord) == 0 {
		out.reset(n, WhyCheapest)
		out.add(Eager, s.all)
		out.Total = base + r.shared(&b.Wait, used)
		return nil
	}
	s.edges(r)
	var p path
	s.shortest(r, b, used, base, &p)
	one := s.bestWhole(r, b, used, base)
	switch {
	case math.IsInf(p.total, 1):
		pl.assign(b, out, WhyFallback, func(t *item, _ int) Mode { return t.cheapest(r) })
	case s.joined: // what neighbours save is exact only now
		s.emit(&p, out)
		s.reprice(r, &p, out)
	case one.total > p.total+tie*math.Abs(p.total):
		s.emit(&p, out)
		return nil
	default:
		s.emitWhole(b, one, out)
		return nil
	}
	if one.total <= out.Total+tie*math.Abs(out.Total) {
		s.emitWhole(b, one, out)
	}
	return nil
}

// emit turns a path into parts.
func (s *search) emit(p *path, out *Plan) {
	out.reset(len(s.items), WhyCheapest)
	out.Total = p.total
	out.add(Eager, s.all[:s.urge])
	var begin [maxCuts]uint8 // runs, last first
	runs := 0
	var used ModeSet
	for j := len(s.cuts) - 1; j > 0; j = int(p.from[j]) {
		begin[runs] = uint8(j)
		runs++
		used = used.With(p.mode[j])
	}
	for _, m := range [...]Mode{Scatter, Eager, Gather} {
		if !used.Has(m) {
			continue
		}
		k := len(out.order)
		for q := runs - 1; q >= 0; q-- {
			j := begin[q]
			if p.mode[j] != m {
				continue
			}
			a, b := s.cuts[p.from[j]], s.cuts[j]
			switch {
			case m == Eager:
				out.order = append(out.order, s.ord[a:b]...)
				continue
			case !s.bounds:
				out.add(m, s.ord[a:b])
				continue
			}
			ends := s.gEnd
			if m == Scatter {
				ends = s.xEnd
			} else if s.sweet[p.from[j]][j] {
				ends = s.sEnd
			}
			for a < b {
				e := min(ends[a], b)
				out.add(m, s.ord[a:e])
				a = e
			}
		}
		if m == Eager { // all runs are one part
			out.close(Eager, k)
		}
	}
}

// reprice replaces in the total what the path says of reads: in a part messages
// ascend, so more of them may be neighbours than in sorted order.
func (s *search) reprice(r *prices, p *path, out *Plan) {
	for j := len(s.cuts) - 1; j > 0; j = int(p.from[j]) {
		if p.mode[j] != Scatter {
			continue
		}
		for a, b := s.cuts[p.from[j]], s.cuts[j]; a < b; {
			e := b
			if s.bounds {
				e = min(s.xEnd[a], b)
			}
			out.Total -= s.pre[e].x - s.pre[a].x + s.pre[a].split
			a = e
		}
	}
	for i := range out.Parts {
		if out.Parts[i].Mode == Scatter {
			out.Total += s.regions(r, &r.l, out.Parts[i].Messages)
		}
	}
}

// take returns how many of the messages idx fit in one part of mode m, at
// least 1.
func take(b *Batch, m Mode, idx []int32) int {
	var r room
	k := 0
	for ; k < len(idx) && r.fits(&b.Limits, b.Messages[idx[k]], m); k++ {
	}
	return max(k, 1)
}

// cheapest returns the mode in which t alone costs least.
func (t *item) cheapest(r *prices) Mode {
	best, mode := math.Inf(1), Eager
	for m, c := range [NumModes]float64{
		t.e,
		t.g + r.gather(1, t.size),
		t.x + r.scatter(1),
	} {
		if m := Mode(m); t.ok.Has(m) {
			if c += r.tail[m]; c < best {
				best, mode = c, m
			}
		}
	}
	return mode
}

// byPolicy plans as the policy says.
func (pl *Planner) byPolicy(b *Batch, out *Plan) {
	why := WhyTable
	if pl.policy.Forced {
		why = WhyForced
	}
	r := &pl.pr
	pl.assign(b, out, why, func(t *item, n int) Mode {
		if m, ok := pl.policy.pick(t.size, n); ok && t.ok.Has(m) {
			return m
		}
		return t.cheapest(r)
	})
}

// assign plans message by message, in the order of the batch.
func (pl *Planner) assign(b *Batch, out *Plan, why Why, mode func(t *item, n int) Mode) {
	s := &pl.search
	n := len(b.Messages)
	out.reset(n, why)
	if why == WhyFallback {
		out.add(Eager, s.all[:s.urge])
	}
	s.tmp = grow(s.tmp, n)
	picked := s.tmp
	for i := range s.items {
		picked[i] = uint32(mode(&s.items[i], n))
	}
	idx := grow(s.ord, n)[:0]
	for _, m := range [...]Mode{Scatter, Eager, Gather} {
		idx = idx[:0]
		for i := range s.items {
			urgent := why == WhyFallback && b.Messages[i].Flags&Urgent != 0 && s.items[i].ok.Has(Eager)
			if !urgent && Mode(picked[i]) == m {
				idx = append(idx, int32(i))
			}
		}
		for len(idx) > 0 {
			k := take(b, m, idx)
			out.add(m, idx[:k])
			idx = idx[k:]
		}
	}
	c := pl.p.PlanCost(b, out.Parts)
	out.Total = c.Total()
}

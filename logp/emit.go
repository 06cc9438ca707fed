package logp

import "math"

// plan computes the plan of a valid batch.
func (pl *Planner) plan(b *Batch, out *Plan) error {
	n := len(b.Messages)
	if n == 0 {
		out.reset(0, WhyCheapest)
		return nil
	}
	s, r := pl.search, &pl.pr
	if err := s.prepare(r, b); err != nil {
		return err
	}
	if !pl.policy.Free() {
		pl.byPolicy(b, out)
		return nil
	}
	base := s.memory
	var used ModeSet
	for _, i := range s.all[:s.urge] {
		base += s.items[i].e
		used = used.With(Eager)
	}
	if len(s.ord) == 0 {
		out.reset(n, WhyCheapest)
		out.add(Eager, s.all)
		out.Total = base + r.shared(&b.Wait, used) + r.first(&s.urgentMoved) + s.credit(r, &s.urgent)
		return nil
	}
	s.edges(r)
	var p path
	s.shortest(r, b, used, base, &p)
	one := s.bestWhole(r, b, used, base)
	margin := tie
	if p.mixed(s) {
		margin = pl.margin
	}
	switch {
	case math.IsInf(p.total, 1):
		pl.assign(b, out, WhyFallback, func(t *item, _, _ int) Mode { return t.cheapest(r) })
	case s.joined || s.wide || s.bounds || s.urge > 0 || p.runs(s, Gather) > 1 || p.runs(s, Scatter) > 1 || p.runs(s, Eager) > 0:
		// Its cost is known only when its parts are in the order of the ring.
		s.emit(&p, out)
		if s.order(r, b, out) {
			margin = max(margin, noise)
		}
		if modes := out.Modes(); s.urge == 0 && modes&(modes-1) != 0 {
			margin = max(margin, pl.margin) // the order has sent some messages of a gather alone
		}
	case one.total > p.total+margin*math.Abs(p.total):
		s.emit(&p, out)
		return nil
	default:
		s.emitWhole(b, one, out)
		return nil
	}
	if one.total <= out.Total+margin*math.Abs(out.Total) {
		s.emitWhole(b, one, out)
	}
	return nil
}

// emit turns a path into parts, with the gathers of the search.
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

// take returns how many of the messages idx fit in one part of mode m, at
// least 1.
func take(b *Batch, m Mode, idx []int32) int {
	var r room
	k := 0
	for ; k < len(idx) && r.fits(&b.Limits, b.Messages[idx[k]], m); k++ {
	}
	return max(k, 1)
}

// cheapest returns the mode in which t alone is cheapest.
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

// byPolicy plans according to the policy.
func (pl *Planner) byPolicy(b *Batch, out *Plan) {
	why := WhyTable
	if pl.policy.Forced {
		why = WhyForced
	}
	r := &pl.pr
	pl.assign(b, out, why, func(t *item, n, at int) Mode {
		if m, ok := pl.policy.pick(t.size, n, at); ok && t.ok.Has(m) {
			return m
		}
		return t.cheapest(r)
	})
}

// assign plans message by message, in the order of the batch.
func (pl *Planner) assign(b *Batch, out *Plan, why Why, mode func(t *item, n, at int) Mode) {
	s := pl.search
	n := len(b.Messages)
	out.reset(n, why)
	s.way = grow(s.way, n)
	for i := range s.items {
		s.way[i] = mode(&s.items[i], n, i)
		if why == WhyFallback && b.Messages[i].Flags&Urgent != 0 && s.items[i].ok.Has(Eager) {
			s.way[i] = Eager
		}
	}
	s.byWay(b, out, false)
	c := pl.p.PlanCost(b, out.Parts)
	out.Total = c.Total()
}

// whole is a plan of one mode for all messages that are not urgent, in the order of the
// batch. The search covers it if no limit cuts a run. If one does, the sorted order may
// need more work requests than the order of the batch, and reads that cover neighbours may
// be split.
type whole struct {
	mode  Mode
	total float64
	ring  int64
}

// bestWhole returns the cheapest of these plans; of equal ones that which uses less
// receiver memory. Its total is infinite if no mode can carry all messages.
func (s *search) bestWhole(r *prices, b *Batch, used ModeSet, base float64) whole {
	best := whole{total: math.Inf(1)}
	for m := range Mode(NumModes) {
		if s.pre[len(s.ord)].bad[m] != 0 {
			continue
		}
		w, f := s.whole(r, b, m)
		moved := s.urgentMoved
		moved[m] += s.pre[len(s.ord)].bytes
		w.total += base + r.shared(&b.Wait, used.With(m)) + r.first(&moved) + s.credit(r, &f)
		eps := tie * math.Abs(w.total)
		if w.total < best.total-eps || w.total <= best.total+eps && w.ring < best.ring {
			best = w
		}
	}
	return best
}

// whole prices mode m for all messages, without the costs that all plans share. f sums the
// operations that use the ring, including urgent messages.
func (s *search) whole(r *prices, b *Batch, m Mode) (w whole, f flow) {
	l, n, sums := &b.Limits, len(s.ord), &s.pre[len(s.ord)]
	w, f = whole{mode: m}, s.urgent
	rest := s.all[s.urge:]
	switch m {
	case Eager:
		w.total, w.ring, f = sums.e, int64(n)*l.EagerBlock, s.full
	case Gather:
		w.total = sums.g
		for i := 0; i < n; {
			k, bytes := s.takeGather(l, rest[i:])
			w.total += r.gather(k, bytes)
			if s.wide {
				f.gather(r, k, bytes)
			}
			w.ring += bytes + int64(k)*int64(l.Segment) + int64(l.Header)
			i += k
		}
		f.work += r.scale[Gather] * s.copied
	case Scatter:
		w.total = sums.x
		if s.joined {
			w.total = s.regions(r, l, rest)
		}
		for i := 0; i < n; {
			k := min(n-i, int(l.ScatterSegs))
			w.total += r.scatter(k)
			w.ring += int64(k)*int64(l.DescSegment) + int64(l.Header)
			i += k
		}
	}
	return w, f
}

// takeGather returns how many of idx one gather carries, and their bytes. It ends before an
// urgent message: those are sent between others in the order of the batch.
func (s *search) takeGather(l *Limits, idx []int32) (k int, bytes int64) {
	if !s.bounds && s.urge == 0 {
		return len(idx), s.pre[len(s.ord)].bytes
	}
	sge := int32(1)
	for ; k < len(idx); k++ {
		t := &s.items[idx[k]]
		sge += t.sge
		if k > 0 && (idx[k] != idx[k-1]+1 || sge > max(l.MaxSGE, 1) || bytes+t.size+int64(k+1)*int64(l.Segment)+int64(l.Header) > l.GatherMax) {
			break
		}
		bytes += t.size
	}
	return k, bytes
}

// regions prices the items of a scatter in the order of the batch, where reads
// cover neighbours within a descriptor.
func (s *search) regions(r *prices, l *Limits, idx []int32) (x float64) {
	var region int64
	for k, i := range idx {
		t := &s.items[i]
		x += t.x
		if t.joined && k%int(l.ScatterSegs) != 0 && idx[k-1] == i-1 {
			x -= r.join(region, t.size)
			region += t.size
		} else {
			region = t.size
		}
	}
	return x
}

// emitWhole turns w into a plan.
func (s *search) emitWhole(b *Batch, w whole, out *Plan) {
	out.reset(len(s.items), WhySingle)
	out.Total = w.total
	out.add(Eager, s.all[:s.urge])
	rest := s.all[s.urge:]
	for len(rest) > 0 {
		k := len(rest)
		switch w.mode {
		case Gather:
			k, _ = s.takeGather(&b.Limits, rest)
		case Scatter:
			k = min(k, int(b.Limits.ScatterSegs))
		}
		out.add(w.mode, rest[:k])
		rest = rest[k:]
	}
}

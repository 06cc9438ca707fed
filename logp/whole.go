package logp

import "math"

// whole is a plan of one mode for all messages that are not urgent, in the
// order of the batch. The search covers it where no limit cuts a run; where one
// does, the sorted order may need more work requests than that of the batch, and
// reads that cover neighbours may come apart.
type whole struct {
	mode  Mode
	total float64
	ring  int64
}

// bestWhole returns the cheapest of them; of equal ones that which takes less
// receiver memory. Its total is infinite when no mode can carry everything.
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

// whole prices mode m for everything, without what all plans share. f is what
// goes through the ring, urgent messages included.
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

// takeGather returns how many of idx one gather carries, and their bytes. It ends
// before an urgent message: those go between others in the order of the batch.
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

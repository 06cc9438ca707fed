package logp

import "math"

// Messages leave the ring in the order of the batch: eager messages and gathers follow each
// other there, and a gather consists of consecutive ones among them. The same holds for
// descriptors, which are as long as possible. The search sorts messages differently. It
// determines the mode of each message; this file determines the contents of gathers and
// descriptors.

// order puts the gathers of a plan into the order of the ring, if the search has not, and
// prices it. finer: it cuts gathers further than limits require.
func (s *search) order(r *prices, b *Batch, out *Plan) (finer bool) {
	gathers, lawful := s.ways(out, int(r.l.ScatterSegs))
	switch {
	case lawful:
		out.Total = s.price(r, b, out.Parts)
	case len(s.chain) <= fewMessages:
		s.segment(r, b)
		s.again(r, b, out, true)
	default:
		s.again(r, b, out, false)
		// Eager messages between gathers cut them: try to gather all.
		more := false
		for _, i := range s.all[s.urge:] {
			if s.way[i] == Eager && s.items[i].ok.Has(Gather) {
				s.way[i], more = Gather, true
			}
		}
		if more {
			s.again(r, b, &s.alt, false)
			s.prefer(out, 1+noise)
			return len(out.Parts) > len(s.alt.Parts)
		}
		return false
	}
	if gathers < 2 {
		return false
	}
	s.again(r, b, &s.alt, false)
	s.prefer(out, 1+noise)
	return len(out.Parts) > len(s.alt.Parts)
}

// prefer uses the alternative plan if it costs at most the given multiple.
func (s *search) prefer(out *Plan, times float64) {
	if s.alt.Total <= times*out.Total && len(s.alt.Parts) < len(out.Parts) || s.alt.Total < out.Total {
		*out, s.alt = s.alt, *out
	}
}

// ways records the mode of each message, and in chain those that use the ring, in its
// order. It returns the number of gathers, and whether all parts are in order.
func (s *search) ways(out *Plan, segs int) (gathers int, lawful bool) {
	n := len(s.items)
	s.way, s.head, s.chain = grow(s.way, n), grow(s.head, n), grow(s.chain, n)[:0]
	for i := range out.Parts {
		q := &out.Parts[i]
		for _, k := range q.Messages {
			s.way[k], s.head[k] = q.Mode, q.Messages[0]
		}
		if q.Mode == Gather {
			gathers++
		}
	}
	lawful = true
	last := int32(-1) // first message of the preceding gather
	scattered, head := 0, int32(0)
	for i := range int32(n) {
		switch s.way[i] {
		case Scatter:
			if scattered%segs == 0 {
				head = i
			}
			lawful = lawful && s.head[i] == head
			scattered++
			continue
		case Eager:
			last = -1
		case Gather:
			// A return to a gather after another one begins at a later message than its
			// first.
			lawful = lawful && (s.head[i] == last || s.head[i] == i)
			last = s.head[i]
		}
		s.chain = append(s.chain, i)
	}
	return gathers, lawful
}

// again computes the plan for the modes in way.
func (s *search) again(r *prices, b *Batch, out *Plan, heads bool) {
	out.reset(len(s.items), WhyCheapest)
	s.byWay(b, out, heads)
	out.Total = s.price(r, b, out.Parts)
}

// segment decides again, for few messages, which of those in chain to gather with their
// neighbours and which to send alone: the shortest path over their order.
func (s *search) segment(r *prices, b *Batch) {
	n := len(s.chain)
	var f [fewMessages + 1]float64
	var from [fewMessages + 1]int
	for j := 1; j <= n; j++ {
		i := s.chain[j-1]
		t := &s.items[i]
		urgent := b.Messages[i].Flags&Urgent != 0 && t.ok.Has(Eager)
		f[j], from[j] = math.Inf(1), -1
		if t.ok.Has(Eager) {
			f[j] = f[j-1] + t.e
		}
		if urgent {
			continue
		}
		var bytes int64
		price, sge := 0.0, int32(1)
		for k := j; k > 0; k-- {
			x := &s.items[s.chain[k-1]]
			bytes += x.size
			price += x.g
			sge += x.sge
			if !x.ok.Has(Gather) || b.Messages[s.chain[k-1]].Flags&Urgent != 0 && x.ok.Has(Eager) ||
				sge > max(r.l.MaxSGE, 1) || bytes+int64(j-k+1)*int64(r.l.Segment)+int64(r.l.Header) > r.l.GatherMax {
				break
			}
			if c := f[k-1] + price + r.gather(j-k+1, bytes); c < f[j] {
				f[j], from[j] = c, k-1
			}
		}
	}
	for j := n; j > 0; {
		k := from[j]
		if k < 0 {
			s.way[s.chain[j-1]] = Eager
			j--
			continue
		}
		for ; j > k; j-- {
			s.way[s.chain[j-1]], s.head[s.chain[j-1]] = Gather, s.chain[k]
		}
	}
}

// byWay makes parts of the modes in way: descriptors, eager messages, gathers. Gathers are
// as large as possible, or begin where head says.
func (s *search) byWay(b *Batch, out *Plan, heads bool) {
	var used ModeSet
	for _, w := range s.way[:len(s.items)] {
		used = used.With(w)
	}
	for _, m := range [...]Mode{Scatter, Eager, Gather} {
		if !used.Has(m) {
			continue
		}
		var q room
		k := len(out.order)
		for i, w := range s.way[:len(s.items)] {
			open := len(out.order) > k
			if open && m == Gather && w == Eager {
				out.close(m, k)
				k, q = len(out.order), room{}
			}
			if w != m {
				continue
			}
			x := b.Messages[i]
			open = len(out.order) > k
			if fits := q.fits(&b.Limits, x, m); open && (!fits || heads && m == Gather && s.head[i] == int32(i)) {
				out.close(m, k)
				k, q = len(out.order), room{}
				q.fits(&b.Limits, x, m)
			}
			out.order = append(out.order, int32(i))
		}
		if len(out.order) > k {
			out.close(m, k)
		}
	}
}

// runs counts the runs of mode m on p.
func (p *path) runs(s *search, m Mode) (n int) {
	for j := len(s.cuts) - 1; j > 0; j = int(p.from[j]) {
		if p.mode[j] == m {
			n++
		}
	}
	return n
}

// mixed reports whether p uses more than one mode.
func (p *path) mixed(s *search) bool {
	k := len(s.cuts) - 1
	if k <= 0 {
		return false
	}
	first := p.mode[k]
	for j := k; j > 0; j = int(p.from[j]) {
		if p.mode[j] != first {
			return true
		}
	}
	return false
}

// ringItem describes a message of a batch that may not fit the ring: its use of the ring
// when eager, and the receiver's work, which is its copy and that of an operation of its
// size.
type ringItem struct {
	held     int64
	copy, or float64
}

// widen prices the use of the ring, for a batch that may not fit it. The search uses a
// price per byte; plans are compared using Limits.stall.
func (s *search) widen(r *prices) {
	r.per = r.wait
	l := &r.l
	s.ring = grow(s.ring, len(s.items))
	for i := range s.items {
		t, x := &s.items[i], &s.ring[i]
		*x = ringItem{held: l.held(t.size + int64(l.Header)), or: r.p.Or.At(t.size)}
		if t.kind&InPlace == 0 {
			x.copy = r.p.C.At(t.size)
		}
		t.e += r.per * float64(x.held)
	}
	s.urgent, s.copied = flow{}, 0
	for _, i := range s.all[:s.urge] {
		s.urgent.eager(r, &s.ring[i])
	}
	s.full = s.urgent
	for _, i := range s.all[s.urge:] {
		s.full.eager(r, &s.ring[i])
		s.copied += s.ring[i].copy
	}
}

func (f *flow) eager(r *prices, t *ringItem) {
	f.put(t.held)
	f.work += r.scale[Eager] * (t.or + t.copy)
}

// gather adds one write of n messages with a sum of m bytes, without their copies.
func (f *flow) gather(r *prices, n int, m int64) {
	m += int64(n)*int64(r.l.Segment) + int64(r.l.Header)
	f.put(r.l.held(m))
	f.work += r.scale[Gather] * r.p.Or.At(m)
}

// credit returns the cost of a plan beyond that in the search.
func (s *search) credit(r *prices, f *flow) float64 {
	if !s.wide {
		return 0
	}
	return r.l.stall(r.trip, f) - r.per*float64(f.held)
}

// price returns the cost of parts: PlanCost, computed from the items.
func (s *search) price(r *prices, b *Batch, parts []Part) (t float64) {
	var f flow
	var used ModeSet
	var moved [NumModes]int64
	for i := range parts {
		q := &parts[i]
		used = used.With(q.Mode)
		for _, k := range q.Messages {
			moved[q.Mode] += s.items[k].size
		}
		switch q.Mode {
		case Eager:
			for _, k := range q.Messages {
				t += s.items[k].e
				if s.wide {
					f.eager(r, &s.ring[k])
				}
			}
		case Gather:
			var bytes int64
			copies := 0.0
			for _, k := range q.Messages {
				x := &s.items[k]
				t += x.g
				bytes += x.size
				if s.wide {
					copies += s.ring[k].copy
				}
			}
			t += r.gather(len(q.Messages), bytes)
			if s.wide {
				f.gather(r, len(q.Messages), bytes)
				f.work += r.scale[Gather] * copies
			}
		case Scatter:
			t += r.scatter(len(q.Messages))
			if s.joined {
				t += s.regions(r, &r.l, q.Messages)
				break
			}
			for _, k := range q.Messages {
				t += s.items[k].x
			}
		}
	}
	return t + s.memory + r.shared(&b.Wait, used) + r.first(&moved) + s.credit(r, &f)
}

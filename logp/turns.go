package logp

// ringItem is, of a batch that may not fit the ring, what a message takes of it when
// eager, and the receiver's work: its copy, and that on an operation of its size.
type ringItem struct {
	held     int64
	copy, or float64
}

// widen prices what depends on the ring, of a batch that may not fit into it: the
// search sees a price for each byte of it, plans are held against each other with
// what Limits.stall says of them.
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

// gather adds one write of n messages of together m bytes, without their copies.
func (f *flow) gather(r *prices, n int, m int64) {
	m += int64(n)*int64(r.l.Segment) + int64(r.l.Header)
	f.put(r.l.held(m))
	f.work += r.scale[Gather] * r.p.Or.At(m)
}

// credit is what a plan costs beyond what the search sees of it.
func (s *search) credit(r *prices, f *flow) float64 {
	if !s.wide {
		return 0
	}
	return r.l.stall(r.trip, f) - r.per*float64(f.held)
}

// price is what parts cost: PlanCost, from the items.
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

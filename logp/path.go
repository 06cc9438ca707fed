package logp

import (
	"math"
	"math/bits"
)

// path is a path over the cuts: for each cut the beginning of its last run and the mode of
// that run.
type path struct {
	total float64
	from  [maxCuts + 1]uint8
	mode  [maxCuts + 1]Mode
}

// edges prices every run between two cuts in every mode.
func (s *search) edges(r *prices) {
	inf := math.Inf(1)
	for i, c := range s.cuts[:len(s.cuts)-1] {
		a, b := &s.pre[c], &s.pre[s.cuts[i+1]]
		s.eCost[i] = b.e - a.e
		if a.bad[Eager] != b.bad[Eager] {
			s.eCost[i] = inf
		}
		g, x := &s.gCost[i], &s.xCost[i]
		if s.bounds {
			s.cutEdges(r, i)
			continue
		}
		for j := i + 1; j < len(s.cuts); j++ {
			d := s.cuts[j]
			b := &s.pre[d]
			n := int(d - c)
			g[j] = r.gather(n, b.bytes-a.bytes) + b.g - a.g
			x[j] = r.scatter(n) + b.x - a.x + a.split
		}
	}
}

// cutEdges does the part of edges for runs that begin at cut i and that limits split into
// several work requests.
func (s *search) cutEdges(r *prices, i int) {
	from := s.cuts[i]
	s.gatherEdges(r, i, s.gEnd, &s.gCost[i])
	s.sweet[i] = [maxCuts + 1]bool{}
	if r.steep {
		var c [maxCuts + 1]float64
		s.gatherEdges(r, i, s.sEnd, &c)
		for j := i + 1; j < len(s.cuts); j++ {
			if c[j] < s.gCost[i][j] {
				s.gCost[i][j], s.sweet[i][j] = c[j], true
			}
		}
	}
	a := &s.pre[from]
	begin, before := from, a.split
	for j := i + 1; j < len(s.cuts); j++ {
		d := s.cuts[j]
		for s.xEnd[begin] < d && s.xEnd[begin] > begin {
			before += r.scatter(int(s.xEnd[begin] - begin))
			begin = s.xEnd[begin]
			before += s.pre[begin].split
		}
		if s.xEnd[begin] < d {
			s.no(&s.xCost[i], j)
			return
		}
		s.xCost[i][j] = before + r.scatter(int(d-begin)) + s.pre[d].x - a.x
	}
}

// gatherEdges prices gathers from cut i on, each up to its end in ends.
func (s *search) gatherEdges(r *prices, i int, ends []int32, cost *[maxCuts + 1]float64) {
	a := &s.pre[s.cuts[i]]
	begin, before := s.cuts[i], 0.0
	for j := i + 1; j < len(s.cuts); j++ {
		d := s.cuts[j]
		for e := ends[begin]; e < d && e > begin; e = ends[begin] {
			before += r.gather(int(e-begin), s.pre[e].bytes-s.pre[begin].bytes)
			begin = e
		}
		if ends[begin] < d {
			s.no(cost, j)
			return
		}
		b := &s.pre[d]
		cost[j] = before + r.gather(int(d-begin), b.bytes-s.pre[begin].bytes) + b.g - a.g
	}
}

// no marks the edges to cut j and beyond as impossible.
func (s *search) no(cost *[maxCuts + 1]float64, j int) {
	for ; j < len(s.cuts); j++ {
		cost[j] = math.Inf(1)
	}
}

// shortest returns the cheapest path over all sets of modes; base is the cost that all
// plans share, and used the modes that are used in any case.
func (s *search) shortest(r *prices, b *Batch, used ModeSet, base float64, best *path) {
	best.total = math.Inf(1)
	var shared [AllModes + 1]float64
	for set := ModeSet(1); set <= AllModes; set++ {
		shared[set] = r.shared(&b.Wait, set|used)
	}
	var p path
next:
	for set := AllModes; set > 0; set-- {
		// A larger set that costs no more makes this one superfluous.
		for more := set + 1; more <= AllModes; more++ {
			if more&set == set && shared[more] <= shared[set] {
				continue next
			}
		}
		s.within(set, &p)
		if p.total += base + shared[set] + p.first(s, r); p.total < best.total {
			*best = p
		}
	}
}

// first returns prices.first of the bytes of p and of the urgent messages.
func (p *path) first(s *search, r *prices) float64 {
	moved := s.urgentMoved
	for j := len(s.cuts) - 1; j > 0; j = int(p.from[j]) {
		if int(p.from[j]) >= j {
			break // there is no path
		}
		moved[p.mode[j]] += s.pre[s.cuts[j]].bytes - s.pre[s.cuts[p.from[j]]].bytes
	}
	return r.first(&moved)
}

// within finds the shortest path that uses only modes of set.
func (s *search) within(set ModeSet, p *path) {
	inf := math.Inf(1)
	var f [maxCuts + 1]float64
	for j := 1; j < len(s.cuts); j++ {
		least, from, mode := inf, 0, Eager
		if set.Has(Eager) {
			least, from = f[j-1]+s.eCost[j-1], j-1
		}
		if set.Has(Gather) {
			for i := range j {
				if c := f[i] + s.gCost[i][j]; c < least {
					least, from, mode = c, i, Gather
				}
			}
		}
		if set.Has(Scatter) {
			for i := range j {
				if c := f[i] + s.xCost[i][j]; c < least {
					least, from, mode = c, i, Scatter
				}
			}
		}
		f[j], p.from[j], p.mode[j] = least, uint8(from), mode
	}
	p.total = f[len(s.cuts)-1]
}

// ends computes gEnd and xEnd: the ends of a gather and of a descriptor that begin at a
// position.
func (s *search) ends(r *prices) {
	l, n := &r.l, len(s.ord)
	t := &s.pre[n]
	s.bounds = r.steep || t.bad != [NumModes]int32{} || n > int(l.ScatterSegs) ||
		1+t.sge > max(l.MaxSGE, 1) || t.bytes+int64(n)*int64(l.Segment)+int64(l.Header) > l.GatherMax
	if !s.bounds {
		return
	}
	s.gEnd, s.xEnd = grow(s.gEnd, n), grow(s.xEnd, n)
	j, k := 0, 0
	for i := range n {
		a := &s.pre[i]
		for j = max(i, j); j < n; j++ {
			b := &s.pre[j+1]
			if b.bad[Gather] != a.bad[Gather] || 1+b.sge-a.sge > max(l.MaxSGE, 1) ||
				b.bytes-a.bytes+int64(j+1-i)*int64(l.Segment)+int64(l.Header) > l.GatherMax {
				break
			}
		}
		for k = max(i, k); k < n && k-i < int(l.ScatterSegs) && s.pre[k+1].bad[Scatter] == a.bad[Scatter]; k++ {
		}
		s.gEnd[i], s.xEnd[i] = int32(j), int32(k)
	}
	if r.steep {
		s.sweetEnds(r)
	}
}

// sweetEnds computes sEnd: as gEnd, but not beyond the size at which gathers cost least per
// byte, of the possible sizes.
func (s *search) sweetEnds(r *prices) {
	n := len(s.ord)
	s.sEnd = grow(s.sEnd, n)
	h, c := int64(r.l.Segment), int64(r.l.Header)
	most := int64(1)
	for i, e := range s.gEnd {
		most = max(most, s.pre[e].bytes-s.pre[i].bytes+int64(int(e)-i)*h+c)
	}
	size := r.sweet(most)
	size += size / 16 // tolerate headers and one more small message
	j := 0
	for i := range n {
		a, end := &s.pre[i], int(s.gEnd[i])
		for j = max(i, j); j < end && (j == i || s.pre[j+1].bytes-a.bytes+int64(j+1-i)*h+c <= size); j++ {
		}
		s.sEnd[i] = int32(j)
	}
}

// chooseCuts computes cuts, the positions where runs may begin and end.
func (s *search) chooseCuts(steep bool) {
	n := len(s.ord)
	s.cuts = append(s.cuts[:0], 0)
	if n <= fewMessages {
		for i := range n {
			s.cuts = append(s.cuts, int32(i+1))
		}
		return
	}
	prev := &s.items[s.ord[0]]
	for k := 1; k < n; k++ {
		t := &s.items[s.ord[k]]
		if t.ok != prev.ok || t.kind != prev.kind || bits.Len64(uint64(t.size)) != bits.Len64(uint64(prev.size)) {
			s.cuts = append(s.cuts, int32(k))
		}
		prev = t
	}
	s.cuts = append(s.cuts, int32(n))
	if len(s.cuts) > maxCuts+1 {
		s.thin()
	}
	if steep && len(s.cuts) <= 4 {
		s.quarter()
	}
}

// thin keeps maxCuts runs, with preference for cuts at which other modes become feasible.
func (s *search) thin() {
	must := 0
	for _, c := range s.cuts[1 : len(s.cuts)-1] {
		if s.items[s.ord[c]].ok != s.items[s.ord[c-1]].ok {
			must++
		}
	}
	may := len(s.cuts) - 2 - must
	keepMust, keepMay := min(must, maxCuts-1), min(may, maxCuts-1-min(must, maxCuts-1))
	out := s.cuts[:1]
	i, j := 0, 0
	last := s.cuts[len(s.cuts)-1]
	for _, c := range s.cuts[1 : len(s.cuts)-1] {
		// Of each kind, keep evenly spread ones.
		if s.items[s.ord[c]].ok != s.items[s.ord[c-1]].ok {
			if i*keepMust/must != (i+1)*keepMust/must {
				out = append(out, c)
			}
			i++
		} else {
			if j*keepMay/may != (j+1)*keepMay/may {
				out = append(out, c)
			}
			j++
		}
	}
	s.cuts = append(out, last)
}

// quarter cuts each of few, large runs into four: if Os grows faster than its argument,
// several gathers beat one.
func (s *search) quarter() {
	var fine [4*3 + 1]int32
	n := 1
	for k := 1; k < len(s.cuts); k++ {
		a, b := s.cuts[k-1], s.cuts[k]
		for q := int32(1); q < 4; q++ {
			if c := a + (b-a)*q/4; c > fine[n-1] {
				fine[n] = c
				n++
			}
		}
		fine[n] = b
		n++
	}
	s.cuts = append(s.cuts[:0], fine[:n]...)
}

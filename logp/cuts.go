package logp

import "math/bits"

// ends fills gEnd and xEnd: how far a gather or a descriptor that begins at a
// position can reach.
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

// sweetEnds fills sEnd: as gEnd, but no further than the size at which gathers
// cost least a byte, of the sizes that there can be.
func (s *search) sweetEnds(r *prices) {
	n := len(s.ord)
	s.sEnd = grow(s.sEnd, n)
	h, c := int64(r.l.Segment), int64(r.l.Header)
	most := int64(1)
	for i, e := range s.gEnd {
		most = max(most, s.pre[e].bytes-s.pre[i].bytes+int64(int(e)-i)*h+c)
	}
	size := r.sweet(most)
	size += size / 16 // headers and one small message more do not count
	j := 0
	for i := range n {
		a, end := &s.pre[i], int(s.gEnd[i])
		for j = max(i, j); j < end && (j == i || s.pre[j+1].bytes-a.bytes+int64(j+1-i)*h+c <= size); j++ {
		}
		s.sEnd[i] = int32(j)
	}
}

// chooseCuts fills cuts, the positions where runs may begin and end.
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

// thin keeps maxCuts runs, those cuts first that change what is possible.
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

// quarter cuts the few, large runs there are into four each: where Os grows
// faster than its argument, several gathers beat one.
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

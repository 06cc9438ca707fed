package logp

import "math"

// Several writes of a batch cannot take less time than one write of all its data, except
// for the costs of operations: the same bytes cross the same link. Measured one size at a
// time, a curve may contradict this. A small message that is sent repeatedly is in the
// processor's nearest cache; one of a megabyte is not, and neither is a batch of a
// megabyte, however small its messages are. So the time beyond the caches depends on the
// batch:
//
//	memory = Memory(S)
//
// and Os holds the rest. It is the same for every mode and therefore does not influence the
// choice; but if Os included it, a gather of many messages would look slower than the
// messages alone.

// Split separates from c, with fixed ns of other costs per operation, the part that makes
// large operations cost more per byte than smaller ones:
//
//	c(x) = near(x) + far(x)     far convex and never falling, 0 up to where
//	                            (c(x) + fixed)/x is least
//
// far is the greatest convex function below c + fixed that begins at 0, less the straight
// line with which it begins. (near + fixed)/x only rises between points, so splitting an
// operation never pays (see pool). Points count at the upper end of their range of
// confidence. If c + fixed does not rise per byte, as with an adapter that is limited first
// by operations and then by bytes, far is 0. Both have the confidence of c.
func (c Curve) Split(fixed float64) (near, far Curve, err error) {
	if c.d == nil {
		return c, Curve{}, nil
	}
	hull := []node{{}}
	slope := func(a, b node) float64 { return (b.y - a.y) / float64(b.x-a.x) }
	nodes := c.d.nodes
	last := nodes[len(nodes)-1]
	for _, n := range nodes {
		if n.x == 0 {
			continue
		}
		n.y = (n.y + fixed) * (1 + doubt(c.Confidence(n.x)))
		for k := len(hull); k > 1 && slope(hull[k-2], hull[k-1]) >= slope(hull[k-2], n); k-- {
			hull = hull[:k-1]
		}
		hull = append(hull, n)
	}
	if len(hull) < 2 {
		return c, Curve{}, nil
	}
	// The curve continues with its last slope.
	for k := len(hull); k > 2 && slope(hull[k-2], hull[k-1]) > last.slope; k-- {
		hull = hull[:k-1]
	}
	base := slope(hull[0], hull[1])
	if len(hull) == 2 && last.slope <= base { // far is 0
		a := c.Points()
		if pool(a, fixed) {
			near, err = FitMonotone(a)
			return near, far, err
		}
		return c, far, nil
	}
	beyond := func(n node) float64 { return max(n.y-base*float64(n.x), 0) }
	var a, b []Point
	for i, n := range hull {
		y := 0.0 // 0 up to the least; computing it would only give rounding errors
		if i > 1 {
			y = beyond(n)
		}
		b = append(b, Point{Size: n.x, NS: y, Conf: c.Confidence(n.x)})
	}
	if end := hull[len(hull)-1]; end.x < MaxSize-octave {
		end.x += octave
		end.y += last.slope * octave
		b = append(b, Point{Size: end.x, NS: beyond(end), Conf: c.Confidence(end.x)})
	}
	if far, err = NewCurve(b); err != nil {
		return c, Curve{}, err
	}
	for _, q := range c.d.points {
		a = append(a, Point{Size: q.Size, NS: max(q.NS-far.At(q.Size), 0), Conf: q.Conf})
	}
	pool(a, fixed)
	near, err = FitMonotone(a)
	return near, far, err
}

// pool changes points so that (ns + fixed)/size never rises: where it does, neighbours are
// averaged by their confidence. A rise that is not attributed to the memory is noise.
func pool(ps []Point, fixed float64) (changed bool) {
	type block struct {
		rate, weight float64
		n            int
	}
	var blocks [MaxPoints]block
	k, skip := 0, 0
	for _, p := range ps {
		if p.Size == 0 {
			skip++
			continue
		}
		q := block{(p.NS + fixed) / float64(p.Size), max(p.Conf, 1e-3), 1}
		for ; k > 0 && blocks[k-1].rate < q.rate; k-- {
			b := blocks[k-1]
			w := b.weight + q.weight
			q = block{(b.rate*b.weight + q.rate*q.weight) / w, w, b.n + q.n}
		}
		blocks[k] = q
		k++
	}
	i := skip
	for _, q := range blocks[:k] {
		for k := i; k < i+q.n && q.n > 1; k++ {
			ps[k].NS, changed = max(q.rate*float64(ps[k].Size)-fixed, 0), true
		}
		i += q.n
	}
	return changed
}

// doubt returns how far a point of that confidence may lie below the true value, as a
// fraction: noise at ½. The least of many points has the largest error, and all others
// would be compared with it.
func doubt(conf float64) float64 { return noise * math.Sqrt(1/max(conf, 1e-4)-1) }

// octave is how far the last slope of a split curve is extended.
const octave = 1 << 20

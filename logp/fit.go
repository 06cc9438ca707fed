package logp

import (
	"fmt"
	"slices"
)

// FitMonotone returns the non-decreasing curve that is nearest to points in least squares
// weighted by confidence (pool adjacent violators: Ayer et al. 1955). A transfer of more
// bytes does not take less time: a sample that contradicts this is noise, which would make
// the planner prefer padding. Points need not be sorted; points of equal size are replaced
// by their weighted mean. A point of confidence 0 is kept with almost no weight. Errors
// wrap ErrCurve.
func FitMonotone(points []Point) (Curve, error) {
	ps := slices.Clone(points)
	for i, p := range ps { // before arithmetic; NewCurve checks sizes
		if !(p.NS >= 0 && p.NS <= MaxNS) || !(p.Conf >= 0 && p.Conf <= 1) {
			return Curve{}, fmt.Errorf("%w: point %d: %v ns, confidence %v", ErrCurve, i, p.NS, p.Conf)
		}
	}
	slices.SortStableFunc(ps, func(a, b Point) int {
		switch {
		case a.Size < b.Size:
			return -1
		case a.Size > b.Size:
			return 1
		}
		return 0
	})
	type block struct {
		ns, w float64
		n     int // points in the block
	}
	const least = 1e-6
	var merged []Point
	var weight []float64
	for _, p := range ps {
		w := max(p.Conf, least)
		if k := len(merged) - 1; k >= 0 && merged[k].Size == p.Size {
			t := weight[k] + w
			merged[k].NS += (p.NS - merged[k].NS) * w / t
			merged[k].Conf = max(merged[k].Conf, p.Conf)
			weight[k] = t
			continue
		}
		merged, weight = append(merged, p), append(weight, w)
	}
	var blocks []block
	for i, p := range merged {
		b := block{ns: p.NS, w: weight[i], n: 1}
		for len(blocks) > 0 && blocks[len(blocks)-1].ns > b.ns {
			a := blocks[len(blocks)-1]
			blocks = blocks[:len(blocks)-1]
			w := a.w + b.w
			b = block{ns: a.ns + (b.ns-a.ns)*b.w/w, w: w, n: a.n + b.n}
		}
		blocks = append(blocks, b)
	}
	i := 0
	for _, b := range blocks {
		for range b.n {
			merged[i].NS = b.ns
			i++
		}
	}
	return NewCurve(merged)
}

// sumAt builds the evaluation nodes of Σ cs at the sizes xs.
func sumAt(xs []int64, cs []Curve) *curve {
	slices.Sort(xs)
	xs = slices.Compact(xs)
	d := &curve{}
	for _, x := range xs {
		y := 0.0
		for _, c := range cs {
			y += c.At(x)
		}
		d.nodes = append(d.nodes, node{x: x, y: y})
	}
	d.finish()
	// Beyond the last node every term continues with its own last slope.
	last := &d.nodes[len(d.nodes)-1]
	last.slope = 0
	for _, c := range cs {
		if c.d != nil {
			last.slope += c.d.nodes[len(c.d.nodes)-1].slope
		}
	}
	return d
}

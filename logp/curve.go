package logp

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
)

// Point is one sample of a Curve.
type Point struct {
	Size int64   `json:"size"` // bytes
	NS   float64 `json:"ns"`   // nanoseconds, not negative
	// Conf is the confidence in the sample, 0 (a guess) to 1. The curve passes through all
	// points alike; Conf is for resampling, refining and printing.
	Conf float64 `json:"conf"`
}

const (
	// MaxPoints bounds a curve: a power-of-two grid up to MaxSize has 41 points; six times
	// that is more than a measurement can take within a start-up budget.
	MaxPoints = 254
	// MaxSize bounds sizes of messages and points, so that sums never overflow.
	MaxSize = 1 << 40
	// MaxNS bounds a time: 10 minutes, far more than any single transfer takes.
	MaxNS = 6e11
)

// Curve is a piecewise-linear function from size in bytes to time in ns. Below the first
// point it is constant; beyond the last it continues with the last slope, or level if that
// is negative. The zero Curve is "unknown" and is 0 everywhere. Curves are immutable;
// copying one is cheap.
type Curve struct{ d *curve }

type curve struct {
	// nodes[0].x is 0. start[l] is the last node at or below the smallest size of bit
	// length l: the search continues over at most the points of one octave, and on a
	// power-of-two grid it needs one comparison.
	nodes  []node
	start  [65]uint16
	points []Point
}

type node struct {
	x     int64
	y     float64
	slope float64 // of the segment that begins here
}

// NewCurve returns a curve through points, which it copies. Their sizes must be strictly
// ascending. Without points it returns the unknown curve. Errors wrap ErrCurve.
func NewCurve(points []Point) (Curve, error) {
	if len(points) == 0 {
		return Curve{}, nil
	}
	if len(points) > MaxPoints {
		return Curve{}, fmt.Errorf("%w: %d points, at most %d", ErrCurve, len(points), MaxPoints)
	}
	for i, p := range points {
		if p.Size < 0 || p.Size > MaxSize {
			return Curve{}, fmt.Errorf("%w: point %d: size %d, want 0 to %d", ErrCurve, i, p.Size, int64(MaxSize))
		}
		if i > 0 && p.Size <= points[i-1].Size {
			return Curve{}, fmt.Errorf("%w: point %d: size %d does not ascend", ErrCurve, i, p.Size)
		}
		if !(p.NS >= 0 && p.NS <= MaxNS) { // also refuses NaN
			return Curve{}, fmt.Errorf("%w: point %d: %v ns, want 0 to %v", ErrCurve, i, p.NS, MaxNS)
		}
		if !(p.Conf >= 0 && p.Conf <= 1) {
			return Curve{}, fmt.Errorf("%w: point %d: confidence %v, want 0 to 1", ErrCurve, i, p.Conf)
		}
	}
	d := &curve{points: append([]Point(nil), points...)}
	if points[0].Size > 0 {
		d.nodes = append(d.nodes, node{x: 0, y: points[0].NS})
	}
	for _, p := range points {
		d.nodes = append(d.nodes, node{x: p.Size, y: p.NS})
	}
	d.finish()
	return Curve{d}, nil
}

// finish computes slopes and the start table from the nodes' x and y.
func (d *curve) finish() {
	n := len(d.nodes)
	for i := 0; i+1 < n; i++ {
		a, b := &d.nodes[i], d.nodes[i+1]
		a.slope = (b.y - a.y) / float64(b.x-a.x)
	}
	d.nodes[n-1].slope = 0
	if n > 1 && d.nodes[n-2].slope > 0 {
		d.nodes[n-1].slope = d.nodes[n-2].slope
	}
	k := 0
	for l := range d.start {
		low := int64(0)
		if l > 0 {
			low = int64(uint64(1) << (l - 1) & math.MaxInt64)
		}
		for k+1 < n && l < 64 && d.nodes[k+1].x <= low {
			k++
		}
		d.start[l] = uint16(k)
	}
}

// At returns the time of m bytes; negative m counts as 0. Hot path: a table look-up by bit
// length, then one comparison per point of the octave.
func (c Curve) At(m int64) float64 {
	d := c.d
	if d == nil {
		return 0
	}
	m = max(m, 0)
	k := int(d.start[bits.Len64(uint64(m))])
	nodes := d.nodes
	for k+1 < len(nodes) && nodes[k+1].x <= m {
		k++
	}
	n := &nodes[k]
	return n.y + n.slope*float64(m-n.x)
}

// Known reports whether the curve has points.
func (c Curve) Known() bool { return c.d != nil }

// Points returns a copy of the points.
func (c Curve) Points() []Point {
	if c.d == nil {
		return nil
	}
	return append([]Point(nil), c.d.points...)
}

// Confidence returns the confidence at m: linear between points, outside of them that of
// the nearest end point, halved per octave beyond the last. It is 0 if the curve is
// unknown.
func (c Curve) Confidence(m int64) float64 {
	if c.d == nil {
		return 0
	}
	ps := c.d.points
	last := ps[len(ps)-1]
	if m >= last.Size {
		return last.Conf * max(float64(last.Size), 1) / max(float64(m), 1)
	}
	for i := len(ps) - 1; i >= 0; i-- {
		if p := ps[i]; p.Size <= m {
			q := ps[i+1]
			return p.Conf + (q.Conf-p.Conf)*float64(m-p.Size)/float64(q.Size-p.Size)
		}
	}
	return ps[0].Conf
}

// MarshalJSON writes the points as a list; an unknown curve is an empty list.
func (c Curve) MarshalJSON() ([]byte, error) {
	if c.d == nil {
		return []byte("[]"), nil
	}
	return json.Marshal(c.d.points)
}

// UnmarshalJSON reads and checks a list of points.
func (c *Curve) UnmarshalJSON(b []byte) error {
	var ps []Point
	if err := json.Unmarshal(b, &ps); err != nil {
		return fmt.Errorf("%w: %w", ErrCurve, err)
	}
	v, err := NewCurve(ps)
	if err != nil {
		return err
	}
	*c = v
	return nil
}

// sum returns the curve Σ cs, with a node wherever one of them has one. It has no points of
// its own and can only be evaluated.
func sum(cs ...Curve) Curve {
	var xs []int64
	for _, c := range cs {
		if c.d == nil {
			continue
		}
		for _, n := range c.d.nodes {
			xs = append(xs, n.x)
		}
	}
	if len(xs) == 0 {
		return Curve{}
	}
	return Curve{sumAt(xs, cs)}
}

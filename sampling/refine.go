package sampling

import (
	"errors"
	"math"
)

// maxSizes bounds the points of Os: twice the powers of two up to the largest
// size there is.
const maxSizes = 56

// refine spends what is left of the budget where it helps most: points between
// neighbours that a straight line does not describe, then the points that are
// known worst, until all are known well enough.
func (t *turn) refine() error {
	for {
		if c := t.missed(); c != nil {
			if err := t.first(c.size); err != nil {
				return err
			}
			continue
		}
		c := t.worst()
		if c == nil {
			return nil
		}
		if err := t.chainSample(c, 1); err != nil && !errors.Is(err, errCut) {
			return err
		}
	}
}

// worst is the point with the lowest confidence for which there is budget, nil
// if all are known well enough.
func (t *turn) worst() *chain {
	var worst *chain
	low := enough
	for _, c := range t.sizes {
		m := t.marginal(c)
		if c.one.n >= maxSamples {
			continue
		}
		if conf := m.conf(t.tol); conf < low && t.fits(c.guess(t)*float64(c.k+1), 1) {
			worst, low = c, conf
		}
	}
	return worst
}

// missed returns a new point where the measured curve is not straight: some
// point lies further from the line between its neighbours than the tolerance,
// and than noise explains. The new point halves the longer of its sides.
func (t *turn) missed() *chain {
	if len(t.sizes) >= maxSizes {
		return nil
	}
	for i := 1; i+1 < len(t.sizes); i++ {
		a, b, c := t.sizes[i-1], t.sizes[i], t.sizes[i+1]
		ma, mb, mc := t.marginal(a), t.marginal(b), t.marginal(c)
		if min(ma.n, mb.n, mc.n) < minSamples+2 {
			continue // first know the points that there are, and their noise
		}
		w := float64(b.size-a.size) / float64(c.size-a.size)
		line := ma.v*(1-w) + mc.v*w
		noise := math.Sqrt(mb.se*mb.se + (1-w)*(1-w)*ma.se*ma.se + w*w*mc.se*mc.se)
		if d := math.Abs(mb.v - line); d <= t.tol*mb.v || d <= 3*noise {
			continue
		}
		for _, gap := range [][2]*chain{{b, c}, {a, b}} {
			size := (gap[0].size + gap[1].size) / 2 &^ 7
			// Between two powers of two one point, then no more: the line
			// between points so close is not what a choice hangs on.
			if size*4 < gap[0].size*5 || size == gap[0].size || t.find(size) != nil {
				continue
			}
			n := &chain{size: size, k: t.chainLength(size)}
			if t.fits(float64(n.k+1)*n.guess(t), 1) {
				return n
			}
		}
	}
	return nil
}

package sampling

import (
	"errors"
	"math"
	"slices"

	"github.com/seed33544411/rma/fabric"
)

// writes returns a chain of k writes of size bytes, the last one signalled. Their targets
// are consecutive, as in a ring, if the area has room.
func (t *turn) writes(size, k int) []fabric.WR {
	wrs := make([]fabric.WR, k)
	step := (size + 63) &^ 63
	places := max(1, int(t.to.Len)/step)
	for i := range wrs {
		wrs[i] = fabric.WR{
			Op: fabric.OpWrite, RKey: t.to.RKey, RemoteAddr: t.to.Addr + uint64(i%places*step),
			Local: []fabric.SGE{fabric.NewSGE(t.out[:size], t.lkey)},
		}
		if size <= t.s.caps.MaxInline {
			wrs[i].Flags |= fabric.FlagInline // as protocols post small writes
		}
	}
	wrs[k-1].Flags |= fabric.FlagSignaled
	return wrs
}

// errCut ends a part whose next operation does not fit.
var errCut = errors.New("budget used")

// chainSample takes one sample of both series of c.
func (t *turn) chainSample(c *chain, share float64) error {
	one := c.guess(t)
	if !t.fits(one, share) {
		return errCut
	}
	wrs := t.writes(c.size, c.k)
	v, err := t.trip(wrs[c.k-1:])
	if err != nil {
		return err
	}
	c.one.add(v)
	if c.k == 1 {
		return nil
	}
	if !t.fits(v*float64(c.k), share) {
		return errCut
	}
	if v, err = t.trip(wrs); err != nil {
		return err
	}
	c.many.add(v)
	return nil
}

// guess returns the least time of a single write of c: measured, or from the next smaller
// measured size, in proportion to the bytes. A disturbed first sample must not prevent the
// second.
func (c *chain) guess(t *turn) float64 {
	base := t.empty.one.least()
	v, from := base, 0
	for _, o := range t.sizes {
		if o != c && o.one.n > 0 && o.size <= c.size && o.size > from {
			from = o.size
			v = base + max(0, o.one.least()-base)*float64(c.size)/float64(o.size)
		}
	}
	switch c.one.n {
	case 0:
		return v
	case 1:
		return min(c.one.least(), disturbed*max(v, atLeast))
	}
	return c.one.least()
}

// chainLength returns the number of writes of a size in a chain: many if the difference to
// one is small compared with the noise of one, few if they take long in any case. The
// longest needs a queue of 64.
func (t *turn) chainLength(size int) int {
	switch {
	case size <= 4<<10 && t.empty != nil && t.empty.one.least() > longTrip:
		return 48
	case size <= 4<<10:
		return 16
	case size <= wide:
		return 6
	}
	return 1
}

// wide is the size up to which chains are measured. Above it, one more write takes as much
// additional time as a single write does, on every link that moves the bytes of one write
// no slower than those of two: chains would only cost time, three times as much for the
// most expensive sizes.
const wide = 64 << 10

// longTrip in ns: a link whose single write takes longer has a latency of many writes, and
// a jitter of one.
const longTrip = 4000

// grid takes the first samples of the powers of two: a few sizes first, from which the
// others could be estimated if the budget ended, then all of them. It takes one sample of
// each in turn, so that a disturbance does not affect all samples of one point.
func (t *turn) grid() error {
	for _, step := range []int{16, 2} {
		for size := 2 * least; size <= t.s.max; size *= step {
			if t.find(size) == nil {
				if err := t.first(size); err != nil {
					return err
				}
			}
		}
		if t.find(t.s.max) == nil {
			if err := t.first(t.s.max); err != nil {
				return err
			}
		}
	}
	for range minSamples - 1 {
		for _, c := range t.sizes {
			if err := t.chainSample(c, 1); err != nil && !errors.Is(err, errCut) {
				return err
			}
		}
	}
	return t.bigReads()
}

// first adds a size, with one sample if there is budget.
func (t *turn) first(size int) error {
	c := &chain{size: size, k: t.chainLength(size)}
	i, _ := slices.BinarySearchFunc(t.sizes, size, func(c *chain, n int) int { return c.size - n })
	t.sizes = slices.Insert(t.sizes, i, c)
	if err := t.chainSample(c, 1); err != nil && !errors.Is(err, errCut) {
		return err
	}
	return nil
}

// bigReads measures the bandwidth of reads, which may differ from that of writes.
func (t *turn) bigReads() error {
	for i, size := range []int{t.s.max / 8, t.s.max} {
		p := &t.reads[i]
		p.size = size
		wrs := t.readRequest(size)
		last := 2 * t.find(size).guess(t)
		for range minSamples {
			if !t.fits(last, 1) {
				return nil
			}
			v, err := t.trip(wrs)
			if err != nil {
				return err
			}
			p.t.add(v)
			last = v
		}
	}
	return nil
}

func (t *turn) find(size int) *chain {
	for _, c := range t.sizes {
		if c.size == size {
			return c
		}
	}
	return nil
}

// marginal returns the cost of one more write of c's size after others.
func (t *turn) marginal(c *chain) estimate {
	a, b := c.one.estimate(), c.many.estimate()
	if c.k == 1 {
		return t.beyond(a)
	}
	if a.n == 0 || b.n == 0 {
		return estimate{se: math.Inf(1)}
	}
	d := float64(c.k - 1)
	e := estimate{v: max(0, b.v-a.v) / d, se: math.Hypot(a.se, b.se) / d, n: min(a.n, b.n), dropped: a.dropped + b.dropped}
	return t.alone(c, a, e)
}

// alone bounds e, the time of one more write of c's size, by a, the time of a single one
// from posting to completion: a write cannot occupy the adapter for longer than that. A
// chain takes longer if its writes disturb each other: by the memory of all of them, which
// logp counts for a batch as a whole, or in a software adapter that waits for
// acknowledgements. That is not a property of a write of that size, and a gather of a batch
// is a single write.
func (t *turn) alone(c *chain, a, e estimate) estimate {
	if c == t.empty {
		return e
	}
	post := t.post1.estimate()
	if post.n == 0 {
		return e
	}
	most := max(0, a.v-post.v) + t.marginal(t.empty).v
	if e.v > most {
		e.v, e.se = most, max(e.se, a.se)
	}
	return e
}

// beyond is marginal for a size of which a single write takes a: it exceeds the largest
// chained size by as much as the single write does. Without one, the smallest size is used.
func (t *turn) beyond(a estimate) estimate {
	from := t.find(wide)
	if from == nil || from.many.n == 0 {
		from = t.empty
	}
	one, p := from.one.estimate(), t.marginal(from)
	if a.n == 0 || p.n == 0 {
		return estimate{se: math.Inf(1)}
	}
	return estimate{v: max(p.v, p.v+a.v-one.v), se: math.Hypot(a.se, math.Hypot(one.se, p.se)), n: a.n, dropped: a.dropped}
}

// maxSizes bounds the points of Os: twice the powers of two up to the largest size.
const maxSizes = 56

// refine spends the rest of the budget where it helps most: on points between neighbours
// that a straight line does not describe, then on the points of the lowest confidence,
// until all have enough.
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

// worst returns the point with the lowest confidence for which there is budget, or nil if
// all have enough.
func (t *turn) worst() *chain {
	var worst *chain
	low := enough
	for _, c := range t.sizes {
		m := t.marginal(c)
		if c.one.n >= maxSamples {
			continue
		}
		if conf := m.conf(); conf < low && t.fits(c.guess(t)*float64(c.k+1), 1) {
			worst, low = c, conf
		}
	}
	return worst
}

// missed returns a new point where the measured curve is not straight: some point is
// further from the line between its neighbours than the tolerance, and than noise explains.
// The new point halves the longer of its sides.
func (t *turn) missed() *chain {
	if len(t.sizes) >= maxSizes {
		return nil
	}
	for i := 1; i+1 < len(t.sizes); i++ {
		a, b, c := t.sizes[i-1], t.sizes[i], t.sizes[i+1]
		ma, mb, mc := t.marginal(a), t.marginal(b), t.marginal(c)
		if min(ma.n, mb.n, mc.n) < minSamples+2 {
			continue // first more samples of the existing points, for their noise
		}
		w := float64(b.size-a.size) / float64(c.size-a.size)
		line := ma.v*(1-w) + mc.v*w
		noise := math.Sqrt(mb.se*mb.se + (1-w)*(1-w)*ma.se*ma.se + w*w*mc.se*mc.se)
		if d := math.Abs(mb.v - line); d <= Tolerance*mb.v || d <= 3*noise {
			continue
		}
		for _, gap := range [][2]*chain{{b, c}, {a, b}} {
			size := (gap[0].size + gap[1].size) / 2 &^ 7
			// One point between two powers of two, then no more: no decision depends on the
			// line between points that are so close.
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

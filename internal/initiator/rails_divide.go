package initiator

import (
	"math/bits"
	"slices"
	"time"

	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/mr"
)

const (
	// maxParts is the number of parts in flight on one rail, maxPuts that of whole puts, or more,
	// up to maxBytes.
	maxParts, maxPuts, maxBytes = 8, 2, 256 << 10

	// wholeTurns is how many operations in a row are predicted to gain nothing by being divided
	// before the rails are timed again: so many, times as the slowest rail is slower than the
	// fastest.
	wholeTurns = 128

	// staleTurns is how many operations are divided before a rail that none of them has timed,
	// because it gets short parts or none, is timed again: what it was found to cost may have
	// been that of a stall.
	staleTurns = 1024
)

// begin posts the first operation of the list, if it may be divided. It returns false if
// other operations must end first.
func (x *Rails) begin(l *opList) bool {
	o, q := l.head, x.q
	d := &o.more.divided
	if d.split {
		x.expand(l)
		return true
	}
	if d.left > 0 || d.long && q.groups.open > 0 {
		return false
	}
	if !d.plan {
		if d.plan = true; !x.plan(o, d) {
			if !d.long {
				o.divides = false // one request of rail 0
				return true
			}
			d.way, d.lens = wayFirst, [mr.MaxRails]int64{int64(o.sge.Len)}
		}
	}
	if !d.may(x, o) {
		return false
	}
	q.fenced = false
	d.began, d.after = time.Now(), q.inflight > 0
	q.eng.inflight.id(o)
	d.cut(x, o)
	if d.rest == 0 {
		l.pop().queued, o.divides = false, false
	}
	whole := o.more.whole
	if x.open == 0 {
		x.of = whole
	} else if x.of != whole {
		x.of = nil
	}
	x.open++
	x.by[d.kind()]++
	x.mix(d.began)
	if o.kind == Put {
		if x.held == 0 {
			x.line = 0
			if whole == nil && d.way > wayFirst && d.way < wayDivided && x.rail[d.way].marking() {
				x.line = d.way
			}
		}
		d.held = true
		x.hold(1)
	}
	x.post()
	return true
}

// may reports whether o, which d divides, may begin beside what is in flight and held. It adapts the division
// to what is in flight now.
func (d *divided) may(x *Rails, o *Op) bool {
	q, whole := x.q, o.more.whole
	switch {
	case whole != nil && x.of == whole && x.open > 0 && q.inflight == x.rail[0].inflight: // only others of its pieces are in flight
	case x.held > 0:
		if q.fenced || d.probe || d.way != x.line || x.line == 0 || x.rail[x.line].ep == nil {
			return false
		}
	case d.way == wayFirst && !q.fenced: // alone on rail 0 it follows what is in flight there
	case q.inflight > x.reads || x.open > 0 && (o.kind == Put || q.fenced):
		return false
	}
	if d.way == wayDivided && !d.probe {
		x.divide(o, d)
	}
	most := maxParts
	if o.kind == Put && d.way > wayFirst && whole == nil {
		most = maxPuts
	}
	for i := range x.rail {
		if r := &x.rail[i]; d.lens[i] > 0 && r.inflight >= most && r.bytes+d.lens[i] > maxBytes {
			return false
		}
	}
	return true
}

// cut makes the parts of o by the lengths of d, and notes them as due.
func (d *divided) cut(x *Rails, o *Op) {
	off := uint32(0)
	for i, n := range d.lens {
		if n == 0 {
			continue
		}
		p := part{off: off, n: uint32(n), rail: uint8(i)}
		if i > 0 && x.rail[i].closed { // since the plan
			x.rail[i].stats.Again++
			p.rail = 0
		}
		if p.index = x.rail[p.rail].puts; o.kind == Put {
			x.rail[p.rail].puts++
		}
		d.parts[d.left] = p
		x.due = append(x.due, duePart{o, uint8(d.left)})
		d.left++
		off += uint32(n)
	}
	o.pending += int32(d.left)
}

// costs returns what the rails cost now, and whether there is one besides rail 0 that can carry o.
func (x *Rails) costs(o *Op) (cs [mr.MaxRails]logp.Rail, others bool) {
	for i := range x.rail {
		r := &x.rail[i]
		if i == 0 && r.cost.PerByte == 0 {
			r.cost = x.assumed()
		}
		cs[i] = r.cost
		cs[i].Busy = float64(r.bytes) * r.cost.PerByte
		if i > 0 && (r.ep == nil || !o.more.keys[i].Has) {
			cs[i] = logp.Rail{Busy: never, PerByte: 1}
		} else {
			others = others || i > 0
		}
	}
	return cs, others
}

// plan chooses the way of o. It returns false if rail 0 carries o as if there were no others.
func (x *Rails) plan(o *Op, d *divided) bool {
	lens := &d.lens
	n := int64(o.sge.Len)
	cs, others := x.costs(o)
	if !others {
		return false
	}
	if (x.by[ways] == 0 || o.kind == Get) && x.sample(&cs, n, lens) {
		if d.probe = true; lens[wayFirst] < n {
			d.way = wayDivided
		}
		return true
	}
	can, want, known := uint(0), [ways]float64{}, true
	for i := range cs {
		if cs[i].Busy < never {
			cs[i].Busy = 0
			can |= 1 << i
			known = known && x.rail[i].samples > 0
			want[i] = max(cs[i].Latency+cs[i].PerByte*float64(n), 1)
		}
	}
	if o.kind == Put && (o.next != nil || x.q.inflight > 0 || x.open > 0) {
		for i := range cs {
			if can>>i&1 != 0 && (i == 0 || x.rail[i].marking()) {
				want[i] = max(want[i]-cs[i].Latency, 1) // it is hidden by what is in flight
			}
		}
	}
	if n >= DivideFrom && x.pays(o, &cs, lens, want[wayFirst], &want[wayDivided]) {
		can |= 1 << wayDivided
	}
	for w := range want {
		want[w] /= float64(n)
	}
	t := x.trialOf(o.sge.Len)
	var timed bool
	if d.way, timed = t.choose(can, &want, known, x.inFlight()); d.way != wayDivided {
		*lens = [mr.MaxRails]int64{}
		lens[d.way] = n
	}
	if n < DivideFrom && t.settled(can) {
		x.q.small.And(^(1 << bits.Len32(o.sge.Len)))
	}
	return timed
}

// pays reports whether it is predicted that o gains by being divided over rails on which
// nothing else is in flight, and stores the predicted end. On rail 0 it takes alone ns.
func (x *Rails) pays(o *Op, cs *[mr.MaxRails]logp.Rail, lens *[mr.MaxRails]int64, alone float64, end *float64) bool {
	n := int64(o.sge.Len)
	*end = logp.Cut(cs[:], n, logp.CutAlign, x.divisionCost(alone), alone, lens[:])
	if lens[0] == n {
		if x.whole++; x.whole >= wholeTurns*spread(o.kind, cs) { // rates may have changed
			x.whole = 0
			for i := range x.rail {
				x.rail[i].samples = 0
			}
		}
		return false
	}
	x.whole = 0
	x.age()
	return slices.Max(lens[:]) < n
}

// spread returns how many times as long as the fastest rail the slowest takes, and with it
// puts that measure both, and hold back others: from 1 to lastPause. Gets do not: 1.
func spread(k Kind, cs *[mr.MaxRails]logp.Rail) uint {
	if k == Get {
		return 1
	}
	low, high := never, 0.0
	for i := range cs {
		if c := &cs[i]; c.Busy < never {
			low, high = min(low, c.PerByte), max(high, c.PerByte)
		}
	}
	return uint(min(max(high/low, 1), lastPause))
}

// divide chooses the parts of o such that they end together, behind what is in flight.
func (x *Rails) divide(o *Op, d *divided) {
	n := int64(o.sge.Len)
	cs, _ := x.costs(o)
	whole := cs[0].Latency + cs[0].PerByte*float64(n)
	logp.Cut(cs[:], n, logp.CutAlign, x.divisionCost(whole), cs[0].Busy+whole, d.lens[:])
}

// divisionCost is the gain in ns that a division must exceed, of an operation that takes so many
// ns on rail 0.
func (x *Rails) divisionCost(alone float64) float64 {
	cost := alone * logp.CutMargin
	if p := x.q.groups.params; p != nil {
		cost += p.CPU.A + p.CPU.B
	}
	return cost
}

// age counts a divided operation, and has the rails that were not timed for too long timed again.
func (x *Rails) age() {
	for i := range x.rail {
		r := &x.rail[i]
		if r.untimed++; r.untimed == staleTurns {
			r.samples, r.untimed = 0, 0
		}
	}
}

// sample divides an operation evenly over rails that have not been timed, so that what is
// assumed of a rail lasts for one operation: over as many as get parts that are long enough to
// be timed. It returns false if there are none.
func (x *Rails) sample(cs *[mr.MaxRails]logp.Rail, n int64, lens *[mr.MaxRails]int64) bool {
	k := int64(0)
	var of [mr.MaxRails]int
	for i := range x.rail {
		if x.rail[i].samples == 0 && cs[i].Busy < never && (k+1)*learnFrom <= n {
			of[k] = i
			k++
		}
	}
	if k == 0 {
		return false
	}
	left := n
	clear(lens[:])
	for _, i := range of[:k] {
		lens[i] = n / k / logp.CutAlign * logp.CutAlign
		left -= lens[i]
	}
	lens[of[k-1]] += left
	return true
}

package logp

import (
	"math"
	"sync/atomic"
)

// noise is the fraction by which a plan that cuts gathers further than limits require must
// be better: it pays for operations, which is certain, and gains the difference of two
// points of a sampled curve. The same is the default for plans that mix modes, see
// PlannerConfig.Margin.
const noise = 0.1

// prices is Params rearranged for planning: curves that are always evaluated together are
// added up once, constants are folded. cost.go is the definition; tests compare the two.
type prices struct {
	p *Params

	os, arrive Curve    // Os; Os + Or
	eager      [3]Curve // Os + Or, and C for each copy
	scale      [NumModes]float64
	tail       [NumModes]float64
	op         [NumModes]float64 // of each write or descriptor, in addition to curves
	msg        [NumModes]float64 // of each message
	byte       [NumModes]float64 // of each byte
	once       float64           // of every plan: a − g
	registers  bool              // R is known
	steep      bool              // for some sizes two writes beat one of both sizes
	perByte    []float64         // of a gather as large as each node of arrive
	trip       float64           // of credit

	// For one Limits, those of the last batch.
	l     Limits
	bound bool
	read  float64           // of each read: Os(r) + g + b
	fixed [NumModes]float64 // of using a mode
	wait  float64           // of each byte of ring, in batches that may not fit it
	per   float64           // wait, or 0 while planning a batch that fits
}

func (r *prices) set(p *Params) {
	*r = prices{p: p, os: p.Os}
	for m := range Mode(NumModes) {
		r.scale[m], r.tail[m] = p.scale(m), p.tail(m)
		r.op[m] = p.G + p.CPU.B + p.Extra[m].PerOp
		r.msg[m], r.byte[m] = p.Extra[m].PerMessage, p.Extra[m].PerByte
	}
	r.op[Scatter] += p.CPU.A - p.G // reads are posted in one call, with g only between them
	r.once = p.CPU.A - p.G
	r.registers = p.R.Known()
	r.trip = p.CreditTrip()
	s := sumsOf(p, r.op[Gather])
	r.arrive, r.eager, r.steep, r.perByte = s.arrive, s.eager, s.steep, s.perByte
}

// sums are the curves that prices adds up. A program has a planner for each peer, and the curves
// of all peers of a class are the same, so that planners share them.
type sums struct {
	os, or, c Curve   // they are made of these
	op        float64 // and this: prices.op of a gather

	arrive  Curve // these are the fields of prices
	eager   [3]Curve
	steep   bool
	perByte []float64
}

// sharedSums holds the last results of sumsOf.
var sharedSums [4]atomic.Pointer[sums]

// sumsOf returns the sums of the curves of p.
func sumsOf(p *Params, op float64) *sums {
	for i := range sharedSums {
		if s := sharedSums[i].Load(); s != nil && s.os == p.Os && s.or == p.Or && s.c == p.C && s.op == op {
			return s
		}
	}
	s := &sums{os: p.Os, or: p.Or, c: p.C, op: op, arrive: sum(p.Os, p.Or)}
	s.eager = [3]Curve{s.arrive, sum(p.Os, p.Or, p.C), sum(p.Os, p.Or, p.C, p.C)}
	// If no segment, extended to the left, meets the axis below −(g + …), (f(m) + g)/m
	// never rises, so f + g is subadditive: cutting a gather never pays. The tolerance is
	// that of noise.
	if d := s.arrive.d; d != nil {
		for _, n := range d.nodes {
			s.steep = s.steep || n.y-n.slope*float64(n.x)+op < -noise*n.y
			s.perByte = append(s.perByte, (n.y+op)/float64(n.x))
		}
	}
	next := s
	for i := range sharedSums { // the oldest is dropped
		next = sharedSums[i].Swap(next)
	}
	return s
}

// bind prepares for batches with limits l.
func (r *prices) bind(l *Limits) {
	if r.bound && r.l == *l {
		return
	}
	r.l, r.bound = *l, true
	p := r.p
	r.read = p.Os.At(int64(l.ReadRequest)) + p.G + p.CPU.B
	for m := range Mode(NumModes) {
		r.fixed[m] = max(p.Extra[m].Fixed, 0) // a negative part is in tail
		if l.Cursor {
			r.fixed[m] += p.Os.At(0) + p.G + p.CPU.B
		}
		r.fixed[m] *= r.scale[m]
	}
	// The wait per byte if blocks are full and there are very many.
	r.wait = 0
	if l.Ring > 0 {
		loop := max(l.Ring/8, 1)
		full := flow{held: l.Ring + loop, largest: l.EagerBlock}
		full.work = float64(full.held) * (p.Or.At(l.EagerBlock) + p.C.At(l.EagerBlock)) / max(float64(l.EagerBlock), 1)
		full.held *= 64
		full.work *= 64
		r.wait = l.stall(r.trip, &full) / float64(full.held)
	}
}

// sweet returns the size up to m at which a gather costs least per byte.
func (r *prices) sweet(m int64) int64 {
	best, size := math.Inf(1), m
	for i, n := range r.arrive.d.nodes {
		x := n.x
		if i == 0 {
			continue // no data
		}
		if x >= m {
			break
		}
		if c := r.perByte[i]; c < best {
			best, size = c, x
		}
	}
	if (r.arrive.At(m)+r.op[Gather])/float64(m) <= best {
		return m
	}
	return size
}

// shared returns the cost of a plan with the modes of s, in addition to its edges.
func (r *prices) shared(wait *[NumModes]float64, s ModeSet) float64 {
	t, tail, w := r.once, math.Inf(-1), 0.0
	for m := range Mode(NumModes) {
		if s.Has(m) {
			t += r.fixed[m]
			tail = max(tail, r.tail[m])
			w = max(w, wait[m])
		}
	}
	if s == 0 {
		tail = 0
	}
	return t + tail + w
}

// first returns the additional cost of the first bytes of each mode, for the given numbers
// of bytes.
func (r *prices) first(moved *[NumModes]int64) (t float64) {
	for m, n := range moved {
		t += r.scale[m] * r.p.Extra[m].first(n)
	}
	return t
}

// item is one message with its price in every mode, as far as that depends only on the
// message.
type item struct {
	size    int64
	e, g, x float64
	sge     int32
	ok      ModeSet
	kind    Flags
	joined  bool
}

// kinds are the flags by which prices of messages of one size differ.
const kinds = Registered | DestRegistered | InPlace | Apart

// item prices m into t. Feasible determines which modes are possible.
func (r *prices) item(m Message, t *item) {
	l := &r.l
	*t = item{size: m.Size, kind: m.Flags & kinds, joined: m.Flags&Joined != 0}
	bytes := float64(m.Size)
	in := 1 - int(m.Flags/InPlace&1) // copies at the receiver
	copies := in
	if l.staged(m) {
		copies++
	} else {
		t.sge = 1
	}
	if m.Size <= l.EagerMax {
		n := in
		if l.copied(m) {
			n++
		}
		t.ok = t.ok.With(Eager)
		t.e = r.scale[Eager] * (r.eager[n].At(m.Size) + r.op[Eager] + r.msg[Eager] + r.byte[Eager]*bytes)
	}
	if m.Size+int64(l.Segment)+int64(l.Header) <= l.GatherMax {
		t.ok = t.ok.With(Gather)
		t.g = r.msg[Gather] + r.byte[Gather]*bytes
		if copies > 0 {
			t.g += float64(copies) * r.p.C.At(m.Size)
		}
		t.g *= r.scale[Gather]
	}
	there := m.Flags & (Registered | DestRegistered)
	if l.ScatterSegs > 0 && m.Flags&Apart == 0 && (there == Registered|DestRegistered || r.registers) {
		t.ok = t.ok.With(Scatter)
		t.x = r.os.At(m.Size) + r.read + r.msg[Scatter] + r.byte[Scatter]*bytes
		switch there {
		case 0:
			t.x += 2 * r.p.R.At(m.Size)
		case Registered, DestRegistered:
			t.x += r.p.R.At(m.Size)
		}
		t.x *= r.scale[Scatter]
	}
}

// gather returns the price of one write of n messages with a sum of m bytes, in addition to
// its items.
func (r *prices) gather(n int, m int64) float64 {
	m += int64(n)*int64(r.l.Segment) + int64(r.l.Header)
	c := r.scale[Gather] * (r.arrive.At(m) + r.op[Gather])
	if r.per > 0 {
		c += r.per * float64(r.l.held(m))
	}
	return c
}

// scatter returns the price of one descriptor of n messages, in addition to its items.
func (r *prices) scatter(n int) float64 {
	return r.scale[Scatter] * (r.arrive.At(int64(n)*int64(r.l.DescSegment)+int64(r.l.Header)) + r.op[Scatter])
}

// join returns what is saved if a read of m bytes continues one of region bytes.
func (r *prices) join(region, m int64) float64 {
	alone := r.read + r.os.At(m)
	return r.scale[Scatter] * (alone - (r.os.At(region+m) - r.os.At(region)))
}

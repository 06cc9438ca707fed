package logp

import (
	"math"
	"math/bits"
)

// The search.
//
// Messages are sorted so that those that gain most from scatter are last: by size, or, if
// only some are registered, by the gain of scatter over gather. A plan cuts this order into
// runs. An eager run is priced message by message; a gather or scatter run is one work
// request, or several if limits require it. The shortest path over the cuts is then the
// best plan of this family, exactly, for each set of modes that may be used (latency, waits
// and fixed costs depend on the set, not on the run).
//
// With few messages, cuts may lie between any two of them; with many, only where the size
// passes a power of two or where other modes become possible, with at most maxCuts runs.
// That bounds the work at maxCuts² edges, and costs 0.3 % of the predicted time on average
// compared with cuts everywhere (family_test.go); 16 runs instead of 12 have no visible
// gain and take a quarter longer.
//
// If some part of Os is so steep that two writes beat one of both sizes, gather runs are
// also tried in pieces of the size that is cheapest per byte.
const (
	fewMessages = 12
	maxCuts     = 12 // at least fewMessages
)

// search holds the scratch memory of the planner. Each step of the search has a file; they
// share memory so that planning does not allocate.
type search struct {
	items       []item
	keys        []uint32
	tmp         []uint32
	all         []int32         // urgent messages, then the rest in the order of the batch
	urge        int             // number of messages in all that are urgent and eager
	urgentMoved [NumModes]int64 // their bytes
	ord         []int32         // the rest, sorted
	pre         []prefix
	gEnd        []int32 // end of a gather that begins here
	sEnd        []int32 // end of one of the cheapest size
	xEnd        []int32
	cuts        []int32

	way   []Mode  // of each message, while gathers are put in order
	head  []int32 // first message of its part
	chain []int32 // messages that go through the ring
	alt   Plan    // an alternative order

	memory       float64 // of the batch
	wide         bool    // it may be larger than the ring
	urgent, full flow    // of the urgent messages; of all, eager
	copied       float64 // receiver's copies of messages that are not urgent
	ring         []ringItem

	joined bool // some message is Joined
	bounds bool // limits cut some run

	gCost, xCost [maxCuts + 1][maxCuts + 1]float64
	eCost        [maxCuts + 1]float64           // to the next cut
	sweet        [maxCuts + 1][maxCuts + 1]bool // the gather run is cut at sEnd
}

// prefix holds sums over the sorted messages before a position.
type prefix struct {
	bytes   int64
	e, g, x float64
	split   float64 // not a sum: added to x by a descriptor that begins here
	sge     int32
	bad     [NumModes]int32 // infeasible messages
}

func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/2)
	}
	return s[:n]
}

// prepare prices and sorts the messages.
func (s *search) prepare(r *prices, b *Batch) error {
	n := len(b.Messages)
	s.items, s.keys, s.tmp = grow(s.items, n), grow(s.keys, n), grow(s.tmp, n)
	s.all, s.joined, s.urgentMoved = grow(s.all, n)[:0], false, [NumModes]int64{}
	r.bind(&b.Limits)
	rest, mixed := 0, false
	var bytes, all int64
	var first *item
	for i := range b.Messages {
		m, t := b.Messages[i], &s.items[i]
		if i > 0 && m == b.Messages[i-1] {
			*t = s.items[i-1]
		} else {
			r.item(m, t)
		}
		if t.ok == 0 {
			return ErrNoMode
		}
		all += t.size
		if m.Flags&Urgent != 0 && t.ok.Has(Eager) {
			s.all = append(s.all, int32(i))
			s.urgentMoved[Eager] += t.size
			continue
		}
		if first == nil {
			first = t
		}
		s.joined = s.joined || t.joined
		mixed = mixed || t.kind != first.kind
		bytes += t.size
		s.keys[rest] = sizeKey(t.size)<<keyShift | uint32(i)
		rest++
	}
	s.urge = len(s.all)
	s.keys = s.keys[:rest]
	for _, k := range s.keys {
		s.all = append(s.all, int32(k&(1<<keyShift-1)))
	}
	if mixed {
		s.byGain(r, bytes)
	}
	s.memory = r.p.Memory.At(all)
	l := &b.Limits
	s.wide = l.Ring > 0 && all+int64(n)*(int64(l.Segment)+int64(l.Header)+l.EagerBlock) > l.Ring
	if r.per = 0; s.wide {
		s.widen(r)
	}
	sortKeys(s.keys, s.tmp)
	s.ord = grow(s.ord, rest)
	for i, k := range s.keys {
		s.ord[i] = int32(k & (1<<keyShift - 1))
	}
	s.sums(r)
	s.ends(r)
	s.chooseCuts(r.steep)
	return nil
}

// byGain replaces the sort keys by the gain of scatter over gather.
func (s *search) byGain(r *prices, bytes int64) {
	perByte := 0.0
	if bytes > 1 {
		perByte = r.scale[Gather] * (r.arrive.At(bytes) - r.arrive.At(bytes/2)) / float64(bytes-bytes/2)
	}
	for k, w := range s.keys {
		i := w & (1<<keyShift - 1)
		t := &s.items[i]
		gain := t.g + perByte*float64(t.size) - t.x
		if !t.ok.Has(Scatter) {
			gain = math.Inf(-1)
		} else if !t.ok.Has(Gather) {
			gain = math.Inf(1)
		}
		s.keys[k] = floatKey(gain)<<keyShift | i
	}
}

// sums computes pre.
func (s *search) sums(r *prices) {
	n := len(s.ord)
	s.pre = grow(s.pre, n+1)
	var a prefix
	var region int64
	for k, i := range s.ord {
		t := &s.items[i]
		x := t.x
		a.split = 0
		if t.joined && k > 0 && s.ord[k-1] == i-1 && t.ok.Has(Scatter) && s.items[i-1].ok.Has(Scatter) {
			// One read fetches this one and the one before.
			a.split = r.join(region, t.size)
			x -= a.split
			region += t.size
		} else {
			region = t.size
		}
		s.pre[k] = a
		a.bytes += t.size
		a.e += t.e
		a.g += t.g
		a.x += x
		a.sge += t.sge
		bad := ^t.ok
		a.bad[Eager] += int32(bad & 1)
		a.bad[Gather] += int32(bad >> 1 & 1)
		a.bad[Scatter] += int32(bad >> 2 & 1)
	}
	a.split = 0
	s.pre[n] = a
}

// sizeKey maps sizes to 15 bits, ascending: exact below 2048, to one part in a thousand
// above. The order of two messages of such similar size does not matter.
func sizeKey(m int64) uint32 {
	if m < 2048 {
		return uint32(m)
	}
	l := bits.Len64(uint64(m)) - 11
	return uint32(l<<10) + uint32(m>>l)
}

// floatKey maps times to 15 bits, ascending.
func floatKey(x float64) uint32 {
	u := math.Float32bits(float32(x))
	if u>>31 != 0 {
		u = ^u
	} else {
		u |= 1 << 31
	}
	return u >> 17
}

const (
	keyShift = 12 // index below, key above: MaxMessages is 1<<12
	digit    = 5  // 15 bits of key in three passes of 32 counters
)

// sortKeys sorts words of key<<keyShift | index by key, stably. tmp is as long as w. Small
// and sorted inputs, the usual ones, take shortcuts.
func sortKeys(w, tmp []uint32) {
	inversions := 0
	for i := 1; i < len(w); i++ {
		if w[i] < w[i-1] {
			inversions++
		}
	}
	if inversions == 0 {
		return
	}
	if len(w) <= 16 {
		for i := 1; i < len(w); i++ {
			x, j := w[i], i
			for ; j > 0 && w[j-1] > x; j-- {
				w[j] = w[j-1]
			}
			w[j] = x
		}
		return
	}
	var count [3][1 << digit]uint32
	for _, x := range w {
		count[0][x>>keyShift&(1<<digit-1)]++
		count[1][x>>(keyShift+digit)&(1<<digit-1)]++
		count[2][x>>(keyShift+2*digit)&(1<<digit-1)]++
	}
	src, dst := w, tmp[:len(w)]
	for pass := range count {
		c := &count[pass]
		at := uint32(0)
		for i, n := range c {
			c[i] = at
			at += n
		}
		for _, x := range src {
			d := x >> (keyShift + pass*digit) & (1<<digit - 1)
			dst[c[d]] = x
			c[d]++
		}
		src, dst = dst, src
	}
	copy(w, tmp) // three passes end in tmp
}

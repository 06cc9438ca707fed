package sampling

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/seed33544411/rma/fabric"
)

// turn is one side's measurement. All times in ns.
type turn struct {
	s          *Session
	in, out    []byte // of this side's data; out's key is lkey
	lkey       uint32
	to         fabric.RemoteKey // where writes go
	tol        float64
	start, end int64
	overhead   float64 // of reading the clock
	ops        int     // samples taken
	cut        bool    // something did not fit into the budget

	ball  series // round trip of 8 bytes
	read  series // of 8 bytes, posting to completion
	empty *chain // of the smallest writes
	post1 series // processor time of posting one of them
	postK series // and empty.k of them
	idle  series // an idle look of the receiver
	sizes []*chain
	reads [2]pair // reads of large sizes, for the bandwidth of the way back
	copy  []*pointSeries
	reg   []*pointSeries
}

// chain is one size's two series: a single write, and k of them posted with one
// call; both from posting to the last completion. With k of 1 only the first.
type chain struct {
	size, k   int
	one, many series
}

type pair struct {
	size int
	t    series
}

type pointSeries struct {
	size int
	t    series
}

// Shares of a turn that a part may have used when it ends, as a fraction of the
// whole: the parts are in order of what a wrong value costs the choice. The
// last part has the rest.
const (
	shareRead  = 0.08
	shareEmpty = 0.20
	shareBall  = 0.35
	shareLocal = 0.50
)

// turn measures this side's half while the peer serves.
func (s *Session) turn() (*Half, error) {
	// The budget begins when the peer is there.
	s.begin(s.budget)
	if err := s.throw(); err != nil {
		return nil, err
	}
	mem := s.data.Bytes()
	t := &turn{
		s: s, in: mem[:s.max], out: mem[s.max : 2*s.max], lkey: s.data.LKey(), to: s.peerData,
		tol: s.opt.Tolerance, start: s.now(),
	}
	t.to.Len = uint64(s.max) // the other half is the peer's own
	t.end = t.start + int64(s.budget)/2
	t.overhead = t.clockCost()
	for _, part := range []func() error{t.hush, t.readTrips, t.empties, t.balls, t.hush, t.local, t.grid, t.refine} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	h, err := t.half()
	if err != nil {
		return nil, err
	}
	h.Spent = float64(s.now() - t.start)
	return h, nil
}

// clockCost is the time between two reads of the clock.
func (t *turn) clockCost() float64 {
	var x series
	for range maxSamples {
		a := t.s.now()
		x.add(float64(t.s.now() - a))
	}
	return x.estimate().v
}

// fits says whether an operation that takes about ns still fits into the share
// of the budget.
func (t *turn) fits(ns, share float64) bool {
	end := t.start + int64(float64(t.end-t.start)*share)
	if float64(t.s.now())+ns <= float64(end) {
		return true
	}
	t.cut = t.cut || share == 1
	return false
}

// since is the time from a to now without the clock's own.
func (t *turn) since(a int64) float64 {
	t.ops++
	return max(0, float64(t.s.now()-a)-t.overhead)
}

// sample calls f until the series is known well enough or the share is used;
// the first minSamples are taken as long as the whole budget has room.
func (t *turn) sample(x *series, share float64, f func() (float64, error)) error {
	last := 0.0
	for x.n < maxSamples {
		limit := share
		if x.n < minSamples {
			limit = 1
		}
		if !t.fits(last, limit) {
			return nil
		}
		a := t.s.now()
		v, err := f()
		if err != nil {
			return err
		}
		x.add(v)
		// The next may be as quick as the quickest so far: one that was disturbed
		// says nothing.
		if d := float64(t.s.now() - a); x.n == 1 || d < last {
			last = d
		}
		if x.n >= 2*minSamples && x.estimate().conf(t.tol) >= enough {
			return nil
		}
	}
	return nil
}

// throw sends the ball and waits until it is back.
func (s *Session) throw() error {
	return s.throwWith(0)
}

// wake throws the ball to a peer that naps.
func (s *Session) wake() error { return s.throwWith(loud) }

func (s *Session) throwWith(flags uint64) error {
	s.ball++
	if err := s.bounce(flags); err != nil {
		return err
	}
	s.begin(0)
	for {
		switch w := loadWord(s.mem, offPing); w &^ quiet {
		case s.ball:
			return nil
		case s.ball - 1:
		default:
			return fmt.Errorf("%w: ball %#x came back as %#x", ErrProtocol, s.ball, w)
		}
		if err := s.look(); err != nil {
			return err
		}
	}
}

// balls measures the round trip. Not at once: a process that has only just
// begun runs through its code and touches its pages for the first time.
func (t *turn) balls() error {
	for range 2 {
		if err := t.s.wake(); err != nil {
			return err
		}
	}
	burst := 0.0
	return t.sample(&t.ball, shareBall, func() (float64, error) {
		a := t.s.now()
		for range max(1, int(burst)) {
			if err := t.s.throw(); err != nil {
				return 0, err
			}
		}
		v := t.since(a) / max(1, burst)
		burst = min(8, atLeast/max(v, 1)) // short trips by the dozen, against the clock's grain
		return v, nil
	})
}

// hush sends the peer out of the way: what follows needs it no more than its
// link does.
func (t *turn) hush() error {
	if err := t.s.bounce(quiet); err != nil {
		return err
	}
	return t.s.drain()
}

// trip is one signalled request, from posting to completion.
func (t *turn) trip(wrs []fabric.WR) (float64, error) {
	a := t.s.now()
	if err := t.s.post(wrs, 1); err != nil {
		return 0, err
	}
	if err := t.s.drain(); err != nil {
		return 0, err
	}
	return t.since(a), nil
}

// readRequest reads size bytes of the peer's data.
func (t *turn) readRequest(size int) []fabric.WR {
	return []fabric.WR{{
		Op: fabric.OpRead, Flags: fabric.FlagSignaled, RKey: t.to.RKey, RemoteAddr: t.to.Addr,
		Local: []fabric.SGE{fabric.NewSGE(t.out[:size], t.lkey)},
	}}
}

func (t *turn) readTrips() error {
	wrs := t.readRequest(8)
	return t.sample(&t.read, shareRead, func() (float64, error) { return t.trip(wrs) })
}

// least is the size of the smallest operation, which stands for one without
// bytes: what cursors and flags take. A write of no bytes at all costs next to
// nothing on links that look at the length first.
const least = 8

// empties measures the gap and what posting costs the processor.
func (t *turn) empties() error {
	t.empty = &chain{size: least, k: 16}
	one := t.writes(least, 1)
	for range minSamples {
		v, err := t.trip(one)
		if err != nil {
			return err
		}
		t.empty.one.add(v)
	}
	t.empty.k = t.chainLength(least)
	many := t.writes(least, t.empty.k)
	timed := func(wrs []fabric.WR, post *series) (float64, error) {
		a := t.s.now()
		if err := t.s.post(wrs, 1); err != nil {
			return 0, err
		}
		b := t.s.now()
		if err := t.s.drain(); err != nil {
			return 0, err
		}
		v := t.since(a)
		post.add(max(0, float64(b-a)-t.overhead))
		return max(0, v-t.overhead), nil
	}
	return t.sample(&t.empty.many, shareEmpty, func() (float64, error) {
		v, err := timed(one, &t.post1)
		if err != nil {
			return 0, err
		}
		t.empty.one.add(v)
		return timed(many, &t.postK)
	})
}

// writes is a chain of k writes of size bytes, the last signalled. Their
// targets are one behind the other, as in a ring, where the area has room.
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

// guess is how long a single write of c takes at least: measured, or from the
// next smaller size that is, the bytes taking in proportion. A first sample that
// was disturbed must not keep the second from being taken.
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

// chainLength is how many writes of a size go into a chain: many where the
// difference to one is small against the noise of one, few where they take long
// anyway. The longest needs a queue of 64.
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

// wide is the size up to which a chain is measured. Beyond, one more write takes
// as much more as a single one does, on every link that moves the bytes of one
// write no slower than those of two: chains would only cost time, three times as
// much for the sizes that cost most.
const wide = 64 << 10

// longTrip in ns: a link whose single write takes longer has latency worth
// many writes, and jitter worth one.
const longTrip = 4000

// grid takes the first samples of the powers of two: a few sizes first, from
// which the rest could be guessed if the budget ended, then all of them. It goes
// round, so that a disturbance does not hit all samples of one point.
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

// bigReads measures the bandwidth of reads: the way back may be slower or
// faster than the way there.
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

// marginal is what one more write of c's size costs behind others.
func (t *turn) marginal(c *chain) estimate {
	a, b := c.one.estimate(), c.many.estimate()
	if c.k == 1 {
		return t.beyond(a)
	}
	if a.n == 0 || b.n == 0 {
		return estimate{se: math.Inf(1)}
	}
	d := float64(c.k - 1)
	return estimate{v: max(0, b.v-a.v) / d, se: math.Hypot(a.se, b.se) / d, n: min(a.n, b.n), dropped: a.dropped + b.dropped}
}

// beyond is marginal for a size of which a single write takes a: as much more
// than the largest chained size as the single write takes more. Without that,
// as much more than the smallest.
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

package sampling

import (
	"math"

	"github.com/seed33544411/rma/fabric"
)

// turn is one side's measurement. All times in ns.
type turn struct {
	s          *Session
	in, out    []byte // of this side's data; lkey is the key of out
	lkey       uint32
	to         fabric.RemoteKey // destination of writes
	start, end int64
	most       int64   // what s.bytes may become
	overhead   float64 // of reading the clock
	ops        int     // samples taken
	cut        bool    // something did not fit the budget

	ball  series // round trip of 8 bytes
	read  series // of 8 bytes, posting to completion
	empty *chain // of the smallest writes
	post1 series // processor time of posting one of them
	postK series // and empty.k of them
	idle  series // an idle poll of the receiver
	sizes []*chain
	reads [2]pair // reads of large sizes, for their bandwidth
	copy  []*pointSeries
	reg   []*pointSeries
}

// chain holds the two series of one size: a single write, and k of them posted by one call,
// both from posting to the last completion. With k = 1 it has only the first.
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

// Shares of a turn that a part may have used when it ends, as a fraction of the whole. The
// parts are ordered by the consequences of a wrong value. The last part has the rest.
const (
	shareRead  = 0.08
	shareEmpty = 0.20
	shareBall  = 0.35
	shareLocal = 0.50
)

// turn measures this side's half while the peer serves.
func (s *Session) turn() (*Half, error) {
	// The budget begins when the peer has answered.
	if err := s.throw(); err != nil {
		return nil, err
	}
	mem := s.data.Bytes()
	t := &turn{
		s: s, in: mem[:s.max], out: mem[s.max : 2*s.max], lkey: s.data.LKey(), to: s.peerData,
		start: s.p.Now(),
	}
	t.to.Len = uint64(s.max) // the other half is the peer's
	t.end = t.start + int64(s.budget)/2
	t.most = math.MaxInt64
	if s.opt.MaxBytes > 0 {
		t.most = s.bytes + s.opt.MaxBytes/2
	}
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
	h.Spent = float64(s.p.Now() - t.start)
	return h, nil
}

// clockCost returns the time between two readings of the clock.
func (t *turn) clockCost() float64 {
	var x series
	for range maxSamples {
		a := t.s.p.Now()
		x.add(float64(t.s.p.Now() - a))
	}
	return x.estimate().v
}

// fits reports whether an operation that takes about ns still fits the share of the budget,
// and the bytes moved so far leave room for it.
func (t *turn) fits(ns, share float64) bool {
	end := t.start + int64(float64(t.end-t.start)*share)
	if float64(t.s.p.Now())+ns <= float64(end) && t.s.bytes < t.most {
		return true
	}
	t.cut = t.cut || share == 1
	return false
}

// since returns the time from a to now without the cost of the clock.
func (t *turn) since(a int64) float64 {
	t.ops++
	return max(0, float64(t.s.p.Now()-a)-t.overhead)
}

// sample calls f until the series has enough confidence or the share is used. The first
// minSamples are taken as long as the whole budget has room.
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
		a := t.s.p.Now()
		v, err := f()
		if err != nil {
			return err
		}
		x.add(v)
		// The next may be as fast as the fastest so far, so a disturbed one does not count.
		if d := float64(t.s.p.Now() - a); x.n == 1 || d < last {
			last = d
		}
		if x.n >= 2*minSamples && x.estimate().conf() >= enough {
			return nil
		}
	}
	return nil
}

package sampling

import (
	"github.com/seed33544411/rma/fabric"
)

// balls measures the round trip. It does not start at once, because a process that has just
// begun executes its code and touches its pages for the first time.
func (t *turn) balls() error {
	for range 2 {
		if err := t.s.wake(); err != nil {
			return err
		}
	}
	for range placings {
		x, yields, trips := series{}, t.s.p.Yields, 1
		err := t.sample(&x, shareBall, func() (float64, error) {
			a := t.s.p.Now()
			for range trips {
				if err := t.s.throw(); err != nil {
					return 0, err
				}
			}
			v := t.since(a) / float64(trips)
			trips = int(max(1, min(8, atLeast/max(v, 1)))) // many short trips per sample, because of the clock's granularity
			return v, nil
		})
		if err != nil {
			return err
		}
		if t.ball.n == 0 || x.n > 0 && x.estimate().v < t.ball.estimate().v {
			t.ball = x
		}
		if t.s.p.Yields-yields < x.n || !t.fits(2*x.least(), shareBall) {
			break
		}
	}
	return nil
}

// placings is the number of times that the round trip is measured if its waits yield. On one host
// the two processes then share a processor, on which the system has placed one of them when it
// woke, and a trip takes as long as two spins. One of them leaves it soon: see Spinner.Apart.
const placings = 4

// hush makes the peer sleep, unless its link needs its polls: the following measurements do
// not need the peer.
func (t *turn) hush() error {
	if err := t.s.bounce(quiet); err != nil {
		return err
	}
	return t.s.drain()
}

// count adds the requests that are going to be posted to the bytes moved, before the clock
// is read.
func (t *turn) count(wrs []fabric.WR) {
	for i := range wrs {
		t.s.bytes += int64(wrs[i].Len())
	}
}

// trip measures one signalled request, from posting to completion.
func (t *turn) trip(wrs []fabric.WR) (float64, error) {
	t.count(wrs)
	a := t.s.p.Now()
	if err := t.s.post(wrs, 1); err != nil {
		return 0, err
	}
	if err := t.s.drain(); err != nil {
		return 0, err
	}
	return t.since(a), nil
}

// readRequest returns a read of size bytes of the peer's data.
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

// least is the size in bytes of the smallest operation, which represents one without bytes:
// that of cursors and flags. A write of zero bytes costs almost nothing on links that check
// the length first.
const least = 8

// empties measures the gap and the processor time of posting.
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
		t.count(wrs)
		a := t.s.p.Now()
		if err := t.s.post(wrs, 1); err != nil {
			return 0, err
		}
		b := t.s.p.Now()
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

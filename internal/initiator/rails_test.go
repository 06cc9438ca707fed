package initiator

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/mr"
)

// What is assumed of rails lasts until an operation is long enough to time them, and is
// measured again after operations that would gain nothing: an assumption that forbids to
// divide cannot stay for ever.
func TestRailsAreTimedFirst(t *testing.T) {
	const n = 1 << 20
	x := &Rails{q: &Queue{}}
	for i := range 2 {
		x.rail[i].cost = logp.Rail{Latency: 1e9, PerByte: 1} // far longer than all of the bytes take
	}
	x.rail[1].ep = struct{ fabric.Endpoint }{}
	plan := func(bytes uint32) (d divided, timed bool) {
		o := &Op{sge: fabric.SGE{Len: bytes}, next: &Op{}, more: &more{}}
		o.more.keys[0].Has, o.more.keys[1].Has = true, true
		timed = x.plan(o, &o.more.divided)
		return o.more.divided, timed
	}
	d, _ := plan(learnFrom - 1)
	require.False(t, d.probe, "too short for one")
	d, timed := plan(2*learnFrom - 1)
	require.True(t, timed && d.probe)
	require.Equal(t, [mr.MaxRails]int64{2*learnFrom - 1}, d.lens, "too short for two")
	d, timed = plan(n)
	require.True(t, timed && d.probe)
	require.Equal(t, [mr.MaxRails]int64{n / 2, n / 2}, d.lens)
	x.rail[0].samples = 1
	d, timed = plan(n + 1)
	require.True(t, timed && d.probe)
	require.Equal(t, [mr.MaxRails]int64{0, n + 1}, d.lens)
	x.rail[1].samples = 1
	for turns := 0; x.rail[1].samples > 0; turns++ {
		require.Less(t, turns, wholeTurns)
		d, _ = plan(n)
		require.False(t, d.probe)
	}
	d, timed = plan(n)
	require.True(t, timed && d.probe)
}

// What is assumed of the rails is the same for all of them, also if the path has been measured
// since they are up.
func TestRailsAssumeThePath(t *testing.T) {
	a, _ := pair(t, sim.Options{})
	a.Prog.Do(func() {
		x := a.Queue.Rails()
		for i := 1; i < 3; i++ {
			x.Up(i, struct{ fabric.Endpoint }{}, fabric.RemoteKey{})
			defer x.Down(i)
		}
		x.rail[2].samples, x.rail[2].cost.PerByte = 1, 77
		a.Queue.Plan(&logp.Params{Lh: 500}, false, 0)
		o := &Op{sge: fabric.SGE{Len: WholeFrom}, more: &more{}}
		for i := range 3 {
			o.more.keys[i].Has = true
		}
		x.plan(o, &o.more.divided)
		require.Equal(t, x.rail[0].cost, x.rail[1].cost)
		require.EqualValues(t, 1000, x.rail[1].cost.Latency)
		require.EqualValues(t, 77, x.rail[2].cost.PerByte, "it was timed")
	})
}

// Each way is tried, the fastest is used, and the others take a bounded share of the time.
func TestRailsUseTheFastestWay(t *testing.T) {
	const can = 1<<wayFirst | 1<<1 | 1<<2 | 1<<wayDivided
	for name, took := range map[string][ways]float64{ // µs
		"rail 0": {10, 20, 400, 0, 15}, "another": {100, 90, 10, 0, 50}, "divided": {10, 20, 20, 0, 9}, "alike": {10, 10.1, 9.9, 0, 10.1},
	} {
		x, best := &Rails{q: &Queue{}}, fastest(can, &took)
		if name == "alike" {
			best = wayFirst // the others would hold back what follows
		}
		t.Run(name, func(t *testing.T) {
			trial, want := x.trialOf(WholeFrom), [ways]float64{1, 1, 1, 1, 1}
			total, used, settled := 0.0, 0, false
			const turns = 1 << 16
			for range turns {
				w, timed := trial.choose(can, &want, false, 1)
				require.True(t, timed || w == wayFirst)
				if timed {
					trial.learn(w, took[w])
				}
				total += took[w]
				settled = settled || trial.settled(can)
				if w == best {
					used++
				}
			}
			require.Greater(t, used, turns*15/16)
			require.Less(t, total, 1.1*turns*took[best])
			require.Equal(t, best == wayFirst, settled)

			took[best] *= 100
			for range turns {
				if w, timed := trial.choose(can, &want, false, 1); timed {
					trial.learn(w, took[w])
				}
			}
			require.NotEqual(t, best, trial.best(can), "it has become slow")
		})
	}
	// What is predicted to be far slower waits for its turn.
	trial, want := &trial{}, [ways]float64{10, 1000, 20, 1, 10}
	for range lastPause {
		w, timed := trial.choose(can, &want, true, 1)
		require.NotEqual(t, 1, w)
		if timed {
			trial.learn(w, want[w])
		}
	}
}

// Short operations need keys of all rails only where another rail than rail 0 may be better.
func TestShortOperationsLookElsewhere(t *testing.T) {
	q := &Queue{}
	x := &q.rails
	x.q = q
	require.False(t, Elsewhere(q, WholeFrom), "no rails")
	x.some = true
	x.forget(1)
	require.False(t, Elsewhere(q, WholeFrom-1))
	for n := WholeFrom; n < DivideFrom; n *= 2 {
		require.True(t, Elsewhere(q, n) && Elsewhere(q, 2*n-1))
	}
	require.False(t, Elsewhere(q, DivideFrom))
	x.rail[1] = rail{ep: struct{ fabric.Endpoint }{}, cost: x.assumed()}
	cost := func(o *Op) float64 { return map[int]float64{wayFirst: 1, 1: 2}[o.more.way] }
	for i := 0; Elsewhere(q, WholeFrom); i++ {
		require.Less(t, i, 4*lastPause)
		o := &Op{sge: fabric.SGE{Len: WholeFrom}, more: &more{}}
		o.more.keys[0].Has, o.more.keys[1].Has = true, true
		if x.plan(o, &o.more.divided) {
			x.trialOf(WholeFrom).learn(o.more.way, cost(o))
		}
	}
	require.True(t, Elsewhere(q, 2*WholeFrom), "it has not been tried")
	for i := 0; !Elsewhere(q, WholeFrom); i++ {
		require.LessOrEqual(t, i, smallTurns)
		x.turn()
	}
}

// Callers ask whether short operations look elsewhere while the queue gets another connection.
func TestLookElsewhereBesideAReset(t *testing.T) {
	const times = 1000
	a, _ := pair(t, sim.Options{})
	var g sync.WaitGroup
	g.Go(func() {
		for range times {
			Elsewhere(&a.Queue, WholeFrom)
		}
	})
	for range times {
		a.Prog.Do(func() { a.Queue.Renew() })
	}
	g.Wait()
}

// What a stall has made of a rail's estimate does not keep the rail out of use for ever while
// operations are divided over others.
func TestRailsThatAreLeftOutAreTimedAgain(t *testing.T) {
	const n = 1 << 20
	x := &Rails{q: &Queue{}}
	for i := range 3 {
		x.rail[i] = rail{ep: struct{ fabric.Endpoint }{}, cost: logp.Rail{PerByte: 1}, samples: 1}
	}
	x.rail[2].cost.PerByte = 1e4
	plan := func() (lens [mr.MaxRails]int64) {
		o := &Op{sge: fabric.SGE{Len: n}, next: &Op{}, more: &more{}}
		for i := range o.more.keys {
			o.more.keys[i].Has = true
		}
		x.plan(o, &o.more.divided)
		for i, b := range o.more.lens {
			if b >= learnFrom {
				x.time(&part{n: uint32(b), since: time.Now(), rail: uint8(i)})
				x.rail[i].cost.PerByte = 1
			}
		}
		return o.more.lens
	}
	require.Zero(t, plan()[2])
	turns := 1
	for plan()[2] == 0 {
		turns++
		require.LessOrEqual(t, turns, staleTurns)
	}
	for turns = 0; plan()[2] == 0; turns++ {
		require.LessOrEqual(t, turns, lastPause, "it is not only timed, but used")
	}

	// One late completion does not leave the rail out.
	r := &x.rail[2]
	was := r.cost.PerByte
	x.time(&part{n: learnFrom, since: time.Now().Add(-time.Hour), rail: 3}) // has no estimate yet
	r.last = time.Time{}
	x.time(&part{n: learnFrom, since: time.Now().Add(-time.Hour), rail: 2})
	require.LessOrEqual(t, r.cost.PerByte, was*(1+outlier)/2)
}

// refusing is an endpoint whose queue is full although nothing is in flight.
type refusing struct{ fabric.Endpoint }

func (refusing) Post([]fabric.WR) (int, error) { return 0, nil }

// A part that a link has refused while nothing was in flight is posted again without an event,
// of which there may be none.
func TestPartsThatAreRefusedAreRetried(t *testing.T) {
	for i := range 2 {
		x := &Rails{q: &Queue{eng: &Engine{}, ep: refusing{}}}
		x.rail[1].ep = refusing{}
		o := &Op{sge: fabric.SGE{Len: 1 << 16}, id: 1, more: &more{}}
		o.more.parts[0] = part{n: 1 << 16, rail: uint8(i)}
		x.due = []duePart{{o, 0}}
		require.True(t, x.post(), "rail %d: the engine may sleep with a part that nothing will post", i)
		require.Len(t, x.due, 1)
		x.q.inflight, x.rail[1].inflight = 1, 1
		require.False(t, x.post(), "rail %d: a completion follows", i)
	}
}

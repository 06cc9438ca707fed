package initiator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
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
	_, timed := plan(learnFrom - 1)
	require.False(t, timed, "too short for one")
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
	for x.whole < otherTurns {
		_, timed = plan(n)
		require.False(t, timed)
	}
	d, timed = plan(n)
	require.True(t, timed && d.probe)
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
				x.time(&part{n: uint32(b), since: time.Now()}, &x.rail[i])
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
	require.Positive(t, plan()[2])

	// One late completion does not leave the rail out.
	r := &x.rail[2]
	was := r.cost.PerByte
	x.time(&part{n: learnFrom, since: time.Now().Add(-time.Hour)}, &rail{}) // has no estimate yet
	r.last = time.Time{}
	x.time(&part{n: learnFrom, since: time.Now().Add(-time.Hour)}, r)
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

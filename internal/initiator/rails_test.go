package initiator

import (
	"testing"

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
	_, timed := plan(2*learnFrom - 1)
	require.False(t, timed, "too short for two")
	d, timed := plan(n)
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

package bench

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMeterCountsBothRanks(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("reads clocks of processes")
	}
	require.NotEmpty(t, hostID())
	a, b := newPipe()
	ctx := testutil.Context(t, time.Minute)
	var m *meter
	var g errgroup.Group
	g.Go(func() (err error) { m, err = newMeter(ctx, a); return err })
	g.Go(func() (err error) { _, err = newMeter(ctx, b); return err })
	require.NoError(t, g.Wait())
	m.start()
	var used time.Duration
	for used < 20*time.Millisecond { // this process must compute, not sleep
		var ok bool
		used, ok = m.spent()
		require.True(t, ok)
	}

	rs, err0, err1 := runPair(t, sim.Options{}, Request{Fabric: "sim", Plans: []Plan{quick(Lat, Put, 8), quick(Rate, Put, 8)}}, nil)
	require.NoError(t, err0)
	require.NoError(t, err1)
	for _, r := range rs {
		require.Positive(t, r.CPUNS)
	}

	_, ok := (&meter{}).spent()
	require.False(t, ok, "of an unknown process")
	gone := &meter{pids: []int{1 << 28}}
	gone.start()
	_, ok = gone.spent()
	require.False(t, ok, "of one that is not there")
}

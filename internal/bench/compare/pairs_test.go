package compare

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestCombineOurs(t *testing.T) {
	t.Parallel()
	one := func(p50, mbs, rate, cpu float64) bench.Result {
		return bench.Result{Mode: "auto", LatUS: bench.Latency{P50: p50, Mean: 2 * p50}, MBs: mbs, Mmsgs: rate, CPUNS: cpu, Iters: 5}
	}
	r := Test{Rate, 8}.Combine([]bench.Result{one(1, 10, 3, 100), one(9, 20, 4, 300), one(2, 30, 5, 200)})
	require.Equal(t, one(2, 60, 12, 200), r)
	require.Equal(t, one(1, 2, 3, 4), Test{Lat, 8}.Combine([]bench.Result{one(1, 2, 3, 4)}), "one pair is what it is")
}

// Pairs that ran one after another each report the rate of a pair alone. Only the clock
// gives the common rate.
func TestStreamsOfPairsGoByTheClock(t *testing.T) {
	t.Parallel()
	require.Equal(t, 2.0, Test{Rate, 8}.together(1000, 500*time.Microsecond))
	require.Equal(t, 2000.0, Test{BW, 1000}.together(1000, 500*time.Microsecond))
	needProc(t)
	c := &crowd{program: &program{Peer: fakePeer(t, "well"), job: Job{Fabric: "shm", Place: Place{Addr: "127.0.0.1"}, Limit: testutil.Limit}, pairs: 2}}
	ctx := testutil.Context(t, 60*time.Second)
	s, _, err := c.run(ctx, Test{Rate, 64}, 1000)
	require.NoError(t, err)
	require.Equal(t, 4.0, s.Figure, "before it is known how long a start takes")
	c.start, c.first.CPU = 1, time.Hour
	s, took, err := c.run(ctx, Test{Rate, 64}, 1000)
	require.NoError(t, err)
	require.Equal(t, float64(c.messages(Test{Rate, 64}, 1000)-c.messages(Test{Rate, 64}, fewIters))/(float64(took-1)/1e3), s.Figure)
	c.start, c.first.CPU = time.Hour, -time.Hour // the clock is useless, but the processor time was an hour
	s, _, err = c.run(ctx, Test{Rate, 64}, 1000)
	require.NoError(t, err)
	require.Less(t, s.Figure, 1e-3)
	s, _, err = c.run(ctx, Test{Lat, 64}, 1000)
	require.NoError(t, err)
	require.Equal(t, 2.0, s.Figure, "a time is a median of what the pairs tell")
}

func TestFitFillsTheTime(t *testing.T) {
	t.Parallel()
	require.Equal(t, 300, more(100, 3))
	require.Equal(t, fewIters, more(100, 0.001))
	require.Equal(t, maxIters, more(maxIters, 8))
	needProc(t)
	c := &crowd{program: &program{Peer: fakePeer(t, "well"), job: Job{Fabric: "shm", Place: Place{Addr: "127.0.0.1"}, Limit: testutil.Limit}}}
	ctx, cancel := context.WithCancel(testutil.Context(t, 60*time.Second))
	n, err := c.fit(ctx, Test{Lat, 8}, time.Hour) // which the fake never takes
	require.NoError(t, err)
	require.Equal(t, maxIters, n, "eight times as many in every trial")
	require.Positive(t, c.start)
	cancel()
	_, err = c.fit(ctx, Test{Lat, 8}, time.Hour)
	require.ErrorIs(t, err, context.Canceled)
}

// Rows of pairs contain the number of ranks.
func TestRunOfPairs(t *testing.T) {
	t.Parallel()
	needProc(t)
	var rows []Row
	err := Run(testutil.Context(t, 60*time.Second), Request{
		Fabric: "shm", Peers: []*Peer{fakePeer(t, "well")}, Tests: []Test{{Lat, 8}}, Rounds: 1, Pairs: 2, Time: time.Millisecond,
	}, func(_ context.Context, test Test) (bench.Result, error) {
		return bench.Result{LatUS: bench.Latency{P50: 1}}, nil
	}, func(r Row) error { rows = append(rows, r); return nil })
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Empty(t, rows[0].Why)
	require.Equal(t, 4, rows[0].Ranks)
	require.Equal(t, 2.0, rows[0].Ratio)
	require.Equal(t, 1, rows[0].Rounds)
}

func TestFreePortsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 50 {
		n := freePort()
		require.False(t, seen[n])
		require.True(t, n >= firstPort && n <= lastPort)
		seen[n] = true
	}
}

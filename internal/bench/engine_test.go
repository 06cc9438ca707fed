package bench

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/jobtest"
	"github.com/seed33544411/rma/internal/testutil"
)

// byRank makes rank r send by modes[r].
func byRank(modes ...rma.Mode) func(*rma.Config) {
	return func(c *rma.Config) { c.Mode = modes[c.Job.Rank] }
}

func TestRunEngine(t *testing.T) {
	plan := func(test Test, op Op, size ...int) Plan {
		return Plan{Test: test, Op: op, Size: size, Time: time.Millisecond, Window: 8}
	}
	req := Request{Plans: []Plan{plan(Lat, Put, 8, 100), plan(BW, Put, 8, 64<<10), plan(Lat, Send, 8, 4096), plan(Rate, Send, 8), plan(BW, Send, 1<<20), plan(Rate, Send, 8)}}
	req.Plans[len(req.Plans)-1].Batch = 3
	for _, fabric := range []string{"shm", "tcp"} {
		for _, ranks := range []int{2, 4} {
			t.Run(fmt.Sprint(fabric, ranks), func(t *testing.T) {
				es := jobtest.Open(t, ranks, fabric)
				ctx := testutil.Context(t, 60*time.Second)
				var rs []Result
				var mu sync.Mutex
				var g errgroup.Group
				for r, e := range es {
					g.Go(func() error {
						mine := Request{}
						if r == 0 {
							mine = req
						}
						return RunEngine(ctx, e, mine, func(x Result) error {
							mu.Lock()
							defer mu.Unlock()
							rs = append(rs, x)
							return nil
						})
					})
				}
				require.NoError(t, g.Wait())
				require.Len(t, rs, req.Points())
				for _, x := range rs {
					require.Equal(t, fabric, x.Fabric)
					require.Positive(t, x.Mmsgs)
					require.GreaterOrEqual(t, x.Iters, int64(DefaultIters))
					if x.Test == Lat {
						require.Positive(t, x.LatUS.P50)
					} else {
						require.Positive(t, x.MBs)
						require.Contains(t, []int{8, 6}, x.Window, "whole batches")
					}
				}
			})
		}
	}
}

// The processor time of a stream of puts is that of both sides. Here both are this process: each
// side counts what it uses from the first put to the last.
func TestMeterSpansAStreamOfPuts(t *testing.T) {
	for _, fabric := range []string{"shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			const size = 64 << 10
			es := jobtest.Open(t, 2, fabric)
			ctx := testutil.Context(t, testutil.Limit)
			p := &Plan{Test: BW, Op: Put, Window: 8}
			sides := make([]*engineSide, 2)
			var g errgroup.Group
			for r, e := range es {
				g.Go(func() error {
					win, err := e.Window(ctx, offIn+2*engineSpan(size))
					sides[r] = newEngineSide(e, p, size, win, cpu.Spinner{})
					return err
				})
			}
			require.NoError(t, g.Wait())
			origin, target := sides[0], sides[1]
			g.Go(func() error { return target.serve(ctx, target.putStream) })
			_, err := origin.phase(ctx, 100, origin.putStream, nil) // the first use of memory
			require.NoError(t, err)
			used := origin.meter()
			_, err = origin.phase(ctx, 5000, origin.putStream, nil)
			whole := used()
			require.NoError(t, err)
			require.NoError(t, origin.tell(ctx, engineAsk, 0))
			require.NoError(t, g.Wait())
			if runtime.GOOS == "linux" { // elsewhere the clocks are not known
				require.Greater(t, float64(origin.cpu), 1.5*float64(whole))
			}
		})
	}
}

// Ranks with different measured parameters choose differently. Here one rank advertises every
// receive, also those of control messages, and the other sends everything through the ring:
// adverts reach a rank that has nothing left to send and spins on memory.
func TestRunEngineWhereModesDiffer(t *testing.T) {
	plan := func(test Test, op Op, size int) Plan {
		return Plan{Test: test, Op: op, Size: []int{size}, Time: time.Millisecond, Window: 8, Stall: testutil.Limit}
	}
	for _, fabric := range []string{"shm", "tcp"} {
		for _, modes := range [][]rma.Mode{{"scatter", "eager"}, {"eager", "scatter"}} {
			t.Run(fmt.Sprint(fabric, modes), func(t *testing.T) {
				t.Parallel()
				req := Request{Plans: []Plan{plan(Lat, Put, 8), plan(Lat, Send, 8), plan(BW, Put, 64<<10)}}
				for range 4 { // the order of the two varies
					es := jobtest.Open(t, 2, fabric, byRank(modes...))
					ctx := testutil.Context(t, 30*time.Second)
					var g errgroup.Group
					points := 0
					g.Go(func() error { return RunEngine(ctx, es[1], Request{}, nil) })
					g.Go(func() error {
						return RunEngine(ctx, es[0], req, func(Result) error { points++; return nil })
					})
					require.NoError(t, g.Wait())
					require.Equal(t, req.Points(), points)
				}
			})
		}
	}
}

func TestCheckEngine(t *testing.T) {
	t.Parallel()
	for _, bad := range []Plan{
		{Test: Lat, Op: Get, Size: []int{8}}, {Test: Lat, Op: Put, Size: []int{8}, Validate: true},
		{Test: Rate, Op: Send, Size: []int{8}, Tags: 2}, {Test: Lat, Op: Send, Mode: "rocket"},
	} {
		r := Request{Plans: []Plan{bad}}
		require.ErrorIs(t, r.CheckEngine(), ErrPlan)
	}
	es := jobtest.Open(t, 1, "shm")
	require.ErrorIs(t, RunEngine(testutil.Context(t, time.Minute), es[0], Request{}, nil), ErrPlan)
}

func TestTogetherTakesAsLongAsTheSlowest(t *testing.T) {
	t.Parallel()
	all := []Result{{Size: 100, Iters: 1000, Seconds: 0.001}, {Size: 100, Iters: 3000, Seconds: 0.002}}
	r := together(all)
	require.Equal(t, Result{Size: 100, Iters: 4000, Seconds: 0.002, Mmsgs: 2, MBs: 200}, r)
}

// As of a peer's pairs: the latency is the median of theirs, of two the mean, and the processor time
// that of all messages.
func TestTogetherIsOfAllPairs(t *testing.T) {
	t.Parallel()
	one := func(us, ns float64, iters int64) Result {
		return Result{Test: Lat, LatUS: Latency{P50: us, Mean: 2 * us}, CPUNS: ns, Iters: iters}
	}
	require.Equal(t, one(2, 40, 100), together([]Result{one(1, 10, 100), one(3, 50, 300)}))
	require.Equal(t, one(3, 20, 100), together([]Result{one(9, 20, 100), one(1, 20, 100), one(3, 20, 100)}))
	require.Zero(t, together([]Result{one(1, 10, 100), one(3, 0, 300)}).CPUNS, "not known of one")
}

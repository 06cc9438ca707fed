package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
)

// pipe is a Control between two goroutines.
type pipe struct {
	rank int
	out  chan<- []byte
	in   <-chan []byte
}

func newPipe() (a, b *pipe) {
	x, y := make(chan []byte, 4), make(chan []byte, 4)
	return &pipe{0, x, y}, &pipe{1, y, x}
}

func (p *pipe) Rank() int { return p.rank }

func (p *pipe) Exchange(ctx context.Context, mine []byte) ([]byte, error) {
	select {
	case p.out <- append([]byte(nil), mine...):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case b := <-p.in:
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// simOpener joins both ranks over one simulated network. wrap may replace a
// rank's endpoint.
func simOpener(ctl Control, net *sim.Network, wrap func(rank int, ep fabric.Endpoint) fabric.Endpoint) Opener {
	return func(ctx context.Context, name string, depth int) (Conn, func() error, error) {
		if name != "sim" {
			return Conn{}, nil, fmt.Errorf("fabric %q: %w", name, fabric.ErrNotSupported)
		}
		l, err := net.NewLink()
		if err != nil {
			return Conn{}, nil, err
		}
		ep, err := l.NewEndpoint(fabric.EndpointOptions{ID: 7, Depth: depth, PeerTimeout: testutil.Limit})
		if err != nil {
			return Conn{}, l.Close, err
		}
		addr, err := ctl.Exchange(ctx, ep.Address())
		if err == nil {
			err = ep.Connect(ctx, addr)
		}
		if wrap != nil {
			ep = wrap(ctl.Rank(), ep)
		}
		var once sync.Once
		return Conn{Fabric: name, Link: l, EP: ep, ID: 7}, func() (err error) {
			once.Do(func() { err = l.Close() })
			return err
		}, err
	}
}

// runPair measures req between two goroutines.
func runPair(t *testing.T, o sim.Options, req Request, wrap func(int, fabric.Endpoint) fabric.Endpoint) (rs []Result, err0, err1 error) {
	t.Helper()
	ctx := testutil.Context(t, 60*time.Second)
	net := sim.NewNetwork(o)
	if req.Sampling == 0 {
		req.Sampling, req.Calibration = -1, -1
	}
	a, b := newPipe()
	var wg sync.WaitGroup
	wg.Go(func() { err1 = Run(ctx, b, simOpener(b, net, wrap), Request{}, nil) })
	err0 = Run(ctx, a, simOpener(a, net, wrap), req, func(r Result) error { rs = append(rs, r); return nil })
	wg.Wait()
	return rs, err0, err1
}

// forced is quick with a mode and tags.
func forced(test Test, mode string, tags int, sizes ...int) Plan {
	p := quick(test, Send, sizes...)
	p.Mode, p.Tags = mode, tags
	return p
}

func quick(test Test, op Op, sizes ...int) Plan {
	return Plan{Test: test, Op: op, Size: sizes, Time: 2 * time.Millisecond, Iters: 40, Window: 16, Stall: testutil.Limit}
}

var simKinds = []string{"sim", "ibv", "shm", "tcp"}

// announcedAfter is less than the time in µs for which a receiver must have left its ring full before
// messages are announced in any mode (stallSteps of internal/message; half of it in a ping-pong).
const announcedAfter = 5000

// Every test and operation runs, on links of every kind, validated and not.
func TestEveryPoint(t *testing.T) {
	for _, kind := range simKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			req := Request{Fabric: "sim", Label: "x"}
			points := 0
			for _, validate := range []bool{false, true} {
				for _, p := range []Plan{
					quick(Lat, Put, 1, 3, 8, 100, 4096, 9000), quick(Lat, Get, 1, 8, 4097), quick(Lat, FAdd, 8), quick(Lat, CAS, 8),
					quick(BW, Put, 7, 4096, 70_000), quick(BW, Get, 4096), quick(Rate, Put, 8), quick(Rate, Get, 1), quick(Rate, FAdd, 8), quick(Rate, CAS, 8),
					quick(Lat, Eager, 1, 8, 4096, MaxEager), quick(BW, Eager, 700, 50_000), quick(Rate, Eager, 8),
					quick(Lat, Send, 1, 8, 4096, 200_000), quick(BW, Send, 700, 50_000), quick(Rate, Send, 8),
					forced(Lat, "eager", 1, 9), forced(Lat, "gather", 3, 100), forced(Lat, "scatter", 1, 5, 70_000),
					forced(BW, "eager", 2, 300), forced(BW, "gather", 5, 64, 9000), forced(BW, "scatter", 3, 64, 100_000),
				} {
					p.Validate, p.Count = validate, 1
					req.Plans = append(req.Plans, p)
					points += len(p.Size)
				}
			}
			require.Equal(t, points, req.Points()) // defaults are not filled in yet
			rs, err0, err1 := runPair(t, sim.Options{Seed: 1, Caps: sim.CapsLike(kind)}, req, nil)
			require.NoError(t, err0)
			require.NoError(t, err1)
			require.Len(t, rs, points)
			for _, r := range rs {
				require.GreaterOrEqual(t, r.Iters, int64(40), "%+v", r)
				require.Equal(t, "sim", r.Fabric)
				require.Equal(t, "x", r.Label)
				l := r.LatUS
				require.True(t, 0 < l.Min && l.Min <= l.P50 && l.P50 <= l.P90 && l.P90 <= l.P99 && l.P99 <= l.P999 && l.P999 <= l.Max, "%+v", r)
				require.Greater(t, r.MBs, 0.0)
				require.InEpsilon(t, r.MBs, r.Mmsgs*float64(r.Size), 1e-9)
				if r.Op == Send {
					require.NotNil(t, r.Ways)
					require.Equal(t, uint64(r.Iters), r.Ways.Eager+r.Ways.Gather+r.Ways.Scatter, "%+v", r)
					if r.Mode != "auto" {
						ways := *r.Ways
						if announced := &ways.Scatter; l.Max > announcedAfter { // in place of the forced mode
							switch r.Mode {
							case "eager":
								ways.Eager, *announced = ways.Eager+*announced, 0
							case "gather":
								ways.Gather, *announced = ways.Gather+*announced, 0
							}
						}
						require.Equal(t, r.Mode, ways.String(), "%+v", r)
					}
				}
				if r.Test == Lat {
					require.InEpsilon(t, r.LatUS.Mean, 1/r.Mmsgs, 1e-3)
				}
			}
		})
	}
}

// Delays, full queues, and writes that become visible in pieces: validation still holds,
// because the loops rely on the link's guarantees only.
func TestPointsUnderHostileTiming(t *testing.T) {
	for _, kind := range simKinds {
		for _, lastByte := range []bool{true, false} {
			t.Run(fmt.Sprint(kind, lastByte), func(t *testing.T) {
				t.Parallel()
				o := sim.Options{Seed: 3, Caps: sim.CapsLike(kind), MaxDelay: 5, MaxCompletionDelay: 5, QueueFull: 0.3, Pieces: 4}
				o.Caps.LastByteLast = lastByte
				req := Request{Fabric: "sim"}
				for _, p := range []Plan{quick(Lat, Put, 8, 24, 30, 500), quick(Lat, Get, 100), quick(BW, Put, 64), quick(BW, Get, 64), quick(Rate, FAdd, 8), quick(Rate, Put, 8), quick(Lat, Eager, 100, 9000), quick(BW, Eager, 5000), quick(Lat, Send, 100, 90_000), quick(BW, Send, 5000)} {
					p.Validate = p.Test != Rate || p.Op == FAdd
					req.Plans = append(req.Plans, p)
				}
				rs, err0, err1 := runPair(t, o, req, nil)
				require.NoError(t, err0)
				require.NoError(t, err1)
				require.Len(t, rs, 15)
			})
		}
	}
}

// corrupt writes a wrong byte to the remote memory after the data request.
type corrupt struct {
	fabric.Endpoint
	op   fabric.Op
	left int
}

func (c *corrupt) Post(wrs []fabric.WR) (int, error) {
	for i := range wrs {
		w := &wrs[i]
		if w.Op != c.op || len(w.Local) == 0 || w.Local[0].Len < 64 {
			continue
		}
		if c.left--; c.left == 0 && w.Op == fabric.OpWrite {
			fabric.BytesAt(w.Local[0].Addr, 64)[17] ^= 0x20
		} else if c.left == 0 {
			w.RemoteAddr++ // read from a wrong address
			defer func() { w.RemoteAddr-- }()
		}
	}
	return c.Endpoint.Post(wrs)
}

// A byte changed in transit is detected, on whichever side it arrives, and both sides end
// at once with the reason.
func TestValidateFindsCorruption(t *testing.T) {
	for _, c := range []struct {
		name string
		plan Plan
		rank int
		op   fabric.Op
	}{
		{"ping", quick(Lat, Put, 512), 0, fabric.OpWrite},
		{"pong", quick(Lat, Put, 512), 1, fabric.OpWrite},
		{"get", quick(Lat, Get, 512), 0, fabric.OpRead},
		{"eager", quick(Lat, Eager, 512), 0, fabric.OpWrite},
		{"eager back", quick(Lat, Eager, 512), 1, fabric.OpWrite},
		{"eager stream", quick(BW, Eager, 512), 0, fabric.OpWrite},
		{"message", forced(Lat, "eager", 1, 512), 0, fabric.OpWrite},
		{"message back", forced(Lat, "eager", 1, 512), 1, fabric.OpWrite},
		{"message fetched", forced(Lat, "scatter", 1, 512), 1, fabric.OpRead},
		{"messages fetched", forced(BW, "scatter", 2, 512), 1, fabric.OpRead},
		{"put window", quick(BW, Put, 512), 0, fabric.OpWrite},
		{"get window", quick(BW, Get, 512), 0, fabric.OpRead},
	} {
		for _, validate := range []bool{true, false} {
			t.Run(fmt.Sprint(c.name, validate), func(t *testing.T) {
				t.Parallel()
				p := c.plan
				p.Validate = validate
				_, err0, err1 := runPair(t, sim.Options{Seed: 1}, Request{Fabric: "sim", Plans: []Plan{p}}, func(rank int, ep fabric.Endpoint) fabric.Endpoint {
					if rank != c.rank {
						return ep
					}
					return &corrupt{Endpoint: ep, op: c.op, left: 20}
				})
				if !validate {
					require.NoError(t, errors.Join(err0, err1), "the corruption itself must not disturb")
					return
				}
				require.Error(t, err0)
				require.Error(t, err1)
				require.True(t, errors.Is(err0, ErrValidate) || errors.Is(err0, ErrPeerFailed), "%v", err0)
				require.Contains(t, err0.Error()+err1.Error(), "differs at byte")
			})
		}
	}
}

// A killed peer, which the link reports, ends the run at once; a frozen one, which it does not,
// ends it within the stall time. Both give a typed error.
func TestDeadPeerEndsTheRun(t *testing.T) {
	for _, plan := range []Plan{quick(Lat, Put, 64, 128), quick(Lat, Get, 64, 128), quick(BW, Put, 64, 128), quick(Lat, CAS, 8), quick(Lat, Eager, 8), quick(Rate, Eager, 8), quick(Lat, Send, 8), quick(Rate, Send, 8)} {
		for _, kind := range simKinds {
			for _, notice := range []bool{true, false} {
				t.Run(fmt.Sprint(plan, kind, notice), func(t *testing.T) {
					t.Parallel()
					plan := plan // one for each of the parallel tests
					plan.Stall, plan.Time = 100*time.Millisecond, 30*time.Millisecond
					if notice {
						plan.Stall = testutil.Limit // a busy machine must not count as silent
					}
					plan.Count = 1000
					ctx := testutil.Context(t, 30*time.Second)
					net := sim.NewNetwork(sim.Options{Seed: 1, Caps: sim.CapsLike(kind)})
					a, b := newPipe()
					ctx1, cancel1 := context.WithCancel(ctx)
					var peer *sim.Link
					open1 := func(ctx context.Context, name string, depth int) (Conn, func() error, error) {
						c, done, err := simOpener(b, net, nil)(ctx, name, depth)
						peer, _ = c.Link.(*sim.Link)
						return c, done, err
					}
					var wg sync.WaitGroup
					var err1 error
					wg.Go(func() { err1 = Run(ctx1, b, open1, Request{}, nil) })
					err0 := Run(ctx, a, simOpener(a, net, nil), Request{Fabric: "sim", Plans: []Plan{plan}, Sampling: -1, Calibration: -1}, func(r Result) error {
						if notice {
							peer.Kill()
						} else {
							peer.Freeze()
						}
						return nil
					})
					cancel1()
					wg.Wait()
					require.Error(t, err1)
					require.NoError(t, ctx.Err(), "rank 0 took too long")
					if notice {
						require.ErrorIs(t, err0, fabric.ErrPeerGone)
					} else {
						// the frozen rank may be the first whose time is over
						require.True(t, errors.Is(err0, ErrStalled) || errors.Is(err0, fabric.ErrPeerGone) || errors.Is(err0, ErrPeerFailed), "%v", err0)
					}
				})
			}
		}
	}
}

// Rank 1 reports a request that it cannot carry out, and both sides end.
func TestOpenFailureAndBadRequests(t *testing.T) {
	t.Parallel()
	_, err0, err1 := runPair(t, sim.Options{}, Request{Fabric: "warp", Plans: []Plan{quick(Lat, Put, 8)}}, nil)
	require.ErrorIs(t, err0, fabric.ErrNotSupported)
	require.ErrorIs(t, err1, fabric.ErrNotSupported)

	// A request that only a broken or hostile rank 0 would send.
	for _, raw := range []string{"", "{", `{"plans":[]}`, `{"fabric":"sim","plans":[{"test":"lat","op":"put","sizes":[-1]}]}`} {
		a, b := newPipe()
		ctx := testutil.Context(t, 10*time.Second)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _ = a.Exchange(ctx, []byte(raw))
			_, _ = a.Exchange(ctx, []byte(`{}`))
		})
		require.Error(t, Run(ctx, b, nil, Request{}, nil), raw)
		wg.Wait()
	}
}

func TestEmitErrorEndsBothSides(t *testing.T) {
	t.Parallel()
	ctx := testutil.Context(t, 20*time.Second)
	net := sim.NewNetwork(sim.Options{})
	a, b := newPipe()
	ctx1, cancel1 := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- Run(ctx1, b, simOpener(b, net, nil), Request{}, nil) }()
	full := errors.New("disk full")
	err := Run(ctx, a, simOpener(a, net, nil), Request{Fabric: "sim", Plans: []Plan{quick(Lat, Get, 8, 16)}}, func(Result) error { return full })
	require.ErrorIs(t, err, full)
	cancel1() // in a job, the launcher does this
	require.Error(t, <-done)
}

// agree returns the own error first, then the other side's unless it is the same. Its text cannot
// contain control characters for a terminal.
func TestAgree(t *testing.T) {
	t.Parallel()
	own := errors.New("own")
	for _, c := range []struct{ mine, theirs, want error }{
		{nil, nil, nil}, {own, nil, own}, {nil, own, ErrPeerFailed}, {own, errors.New("x"), own}, {own, errors.New("own"), own},
	} {
		a, b := newPipe()
		ctx := testutil.Context(t, 10*time.Second)
		var wg sync.WaitGroup
		wg.Go(func() { _ = agree(ctx, b, c.theirs) })
		err := agree(ctx, a, c.mine)
		wg.Wait()
		require.ErrorIs(t, err, c.want)
		if c.mine != nil && c.theirs != nil {
			require.Equal(t, c.mine.Error() != c.theirs.Error(), errors.Is(err, ErrPeerFailed), "%v", err)
		}
	}
	a, b := newPipe()
	ctx := testutil.Context(t, 10*time.Second)
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = b.Exchange(ctx, []byte("\x1b]2;boo")) })
	require.ErrorContains(t, agree(ctx, a, nil), "not a verdict")
	wg.Wait()
	require.Equal(t, "a b …", printable("a\nb\x1bccc", 4))
}

// Timing loops do not allocate: many times the operations, the same number of
// allocations.
func TestTimingLoopsAllocateNothing(t *testing.T) {
	if testutil.Race {
		t.Skip("the race detector makes pools forget; the run without it counts")
	}
	for _, p := range []Plan{quick(Lat, Put, 64), quick(Lat, Get, 64), quick(Lat, FAdd, 8), quick(BW, Put, 64), quick(Rate, Get, 8), quick(Lat, Eager, 64), quick(Rate, Eager, 8), quick(Lat, Send, 64), quick(Rate, Send, 8)} {
		allocs := func(iters int64) float64 {
			q := p
			q.Iters, q.Time = iters, time.Millisecond
			return testing.AllocsPerRun(1, func() {
				_, err0, err1 := runPair(t, sim.Options{Seed: 1, Caps: sim.CapsLike("tcp")}, Request{Fabric: "sim", Plans: []Plan{q}}, nil)
				require.NoError(t, errors.Join(err0, err1))
			})
		}
		few, many := allocs(100), allocs(3000)
		require.Less(t, many-few, 200.0, "%v: %v allocations for 100, %v for 3000 operations", p, few, many)
	}
}

func TestMain(m *testing.M) {
	lastWords = 100 * time.Millisecond
	testutil.Main(m)
}

package pingpong

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/linktest"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/logp"
)

func TestPlayInEveryModeOverEveryLink(t *testing.T) {
	for link := range links {
		t.Run(link, func(t *testing.T) {
			t.Parallel()
			a, b := pair(t, link, Options{Span: 2 << 20})
			times := make([]int64, 3)
			for _, sizes := range [][]int{{8}, {64, 64, 0, 5000, 64}, {1 << 20, 8, 8, 100_000}} {
				for _, p := range []logp.Policy{{}, {Forced: true, Mode: logp.Eager}, {Forced: true, Mode: logp.Gather}, {Forced: true, Mode: logp.Scatter}} {
					together(t, a, b, func(ctx context.Context, s *Side) error {
						if err := s.Load(sizes); err != nil {
							return err
						}
						if err := s.Channel().SetPolicy(p); err != nil {
							return err
						}
						s.Forget()
						ts := times
						if !s.opt.First {
							ts = make([]int64, len(times))
						}
						return s.Play(ctx, ts)
					})
					require.NoError(t, a.Check())
					require.NoError(t, b.Check())
					for _, x := range times {
						require.Positive(t, x)
					}
				}
			}
			for _, s := range []*Side{a, b} {
				n := s.Channel().Stats().Messages
				require.Positive(t, n[logp.Eager])
				require.Positive(t, n[logp.Gather])
				require.Positive(t, n[logp.Scatter])
			}
		})
	}
}

func TestCheckSeesWhatDidNotArrive(t *testing.T) {
	t.Parallel()
	a, b := pair(t, "sim", Options{})
	for _, s := range []*Side{a, b} {
		require.NoError(t, s.Load([]int{100, 200}))
		s.Forget()
	}
	together(t, a, b, func(ctx context.Context, s *Side) error { return s.Play(ctx, make([]int64, 1)) })
	require.NoError(t, a.Check())
	mem := a.reg.Bytes()[a.opt.Span:]
	mem[a.at[1]+199] ^= 1
	require.ErrorIs(t, a.Check(), ErrWrong)
	mem[a.at[1]+199] ^= 1
	mem[a.at[1]+200] ^= 1 // behind the message
	require.NoError(t, a.Check())
}

func TestLoadRefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	a, _ := pair(t, "sim", Options{Span: 8192})
	require.NoError(t, a.Load([]int{4000, 4000}))
	require.ErrorIs(t, a.Load([]int{4096, 4096}), ErrSpan)
	require.ErrorIs(t, a.Load(nil), ErrSpan)
	for _, sizes := range [][]int{{1}, {64}, {65, 1}, {0, 0}} {
		require.LessOrEqual(t, sizes[0]+64, Need(sizes))
	}
}

func TestASilentPeerEndsTheWait(t *testing.T) {
	t.Parallel()
	a, _ := pair(t, "sim", Options{Stall: 20 * time.Millisecond})
	require.NoError(t, a.Load([]int{8}))
	require.ErrorIs(t, a.Play(context.Background(), make([]int64, 1)), ErrStalled)
}

func TestACancelledContextEndsTheWait(t *testing.T) {
	t.Parallel()
	a, _ := pair(t, "sim", Options{})
	require.NoError(t, a.Load([]int{8}))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, a.Play(ctx, make([]int64, 1)), context.Canceled)
	_, err := Open(ctx, a.link, a.ep, Options{Span: 64 << 20})
	require.ErrorIs(t, err, context.Canceled, "it provides memory")
}

func TestBothSidesGetTheSameCalibration(t *testing.T) {
	for link := range links {
		t.Run(link, func(t *testing.T) {
			t.Parallel()
			a, b := pair(t, link, Options{Span: CalibrationSpan})
			// A model with large errors, as that of another machine would have.
			p := a.Channel().Params()
			p.Ls, p.Lh, p.G = 300_000, 300_000, 2000
			var got, other logp.Params
			var out, theirs *Outcome
			together(t, a, b, func(ctx context.Context, s *Side) (err error) {
				if s == a {
					got, out, err = s.Calibrate(ctx, p, time.Second)
				} else {
					other, theirs, err = s.Calibrate(ctx, p, time.Nanosecond) // the first side's counts
				}
				return err
			})
			require.Equal(t, got, other)
			require.Equal(t, got, a.Channel().Params())
			require.Equal(t, got, b.Channel().Params())
			require.NoError(t, got.Validate())
			require.Equal(t, out.Probes, theirs.Probes)
			require.Equal(t, out.Error, theirs.Error)
			for m, samples := range out.Samples {
				for _, x := range samples {
					require.Positive(t, x.NS)
				}
				if len(samples) == 0 { // the budget ended before
					require.Equal(t, p.Extra[m], got.Extra[m])
					continue
				}
				want, err := logp.FitExtraHeldOut(&p, logp.Mode(m), samples)
				require.NoError(t, err)
				require.Equal(t, want.Extra, got.Extra[m])
			}
		})
	}
}

func TestAnEmptyBudgetChangesNothing(t *testing.T) {
	t.Parallel()
	a, b := pair(t, "sim", Options{Span: CalibrationSpan})
	p := a.Channel().Params()
	together(t, a, b, func(ctx context.Context, s *Side) error {
		q, _, err := s.Calibrate(ctx, p, -1)
		if err == nil && !reflect.DeepEqual(q, p) {
			err = errors.New("changed")
		}
		return err
	})
}

func TestPlayingAllocatesNothing(t *testing.T) {
	a, b := pair(t, "shm", Options{})
	for _, s := range []*Side{a, b} {
		require.NoError(t, s.Load([]int{8192, 8192, 8192, 8192})) // more than is sent without a plan
	}
	const runs, trips = 5, 20
	done := make(chan error, 1)
	go func() {
		times := make([]int64, trips)
		for range runs + 1 {
			if err := b.Play(context.Background(), times); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	times := make([]int64, trips)
	var err error
	// The count is of both goroutines; the runtime itself allocates now and then.
	n := testutil.AllocsPerRun(runs, func() {
		if e := a.Play(context.Background(), times); e != nil {
			err = e
		}
	})
	require.NoError(t, err)
	require.NoError(t, <-done)
	require.Less(t, n, float64(trips)/2)
}

func TestOneMessageEach(t *testing.T) {
	t.Parallel()
	a, b := pair(t, "sim", Options{})
	for _, s := range []*Side{a, b} {
		require.NoError(t, s.Load([]int{8192, 8192, 8192, 8192})) // more than is sent without a plan
		require.NoError(t, s.Channel().SetPolicy(logp.Policy{Forced: true, Mode: logp.Gather}))
		s.SetEach(true)
	}
	play := func(ctx context.Context, s *Side) error { return s.Play(ctx, make([]int64, 2)) }
	together(t, a, b, play)
	n := a.Channel().Stats().Plans
	require.Equal(t, uint64(8), n, "a plan a message")
	a.SetEach(false)
	together(t, a, b, play)
	require.Equal(t, uint64(2), a.Channel().Stats().Plans-n, "a plan a batch")
}

func TestRendezvousBothWays(t *testing.T) {
	for link := range links {
		t.Run(link, func(t *testing.T) {
			t.Parallel()
			la, lb, err := links[link]()
			require.NoError(t, err)
			ea, eb := linktest.Join(t, la, lb, fabric.EndpointOptions{ID: 7})
			o := Options{First: true, Span: 1 << 20, Stall: 30 * time.Second}
			a, err := OpenRendezvous(la, ea, o, 3)
			require.NoError(t, err)
			o.First = false
			b, err := OpenRendezvous(lb, eb, o, 3)
			require.NoError(t, err)
			t.Cleanup(func() {
				require.NoError(t, errors.Join(a.Close(), b.Close(), la.Close(), lb.Close()))
			})
			require.NoError(t, a.Connect(b.Setup()))
			require.NoError(t, b.Connect(a.Setup()))
			over := make(chan struct{}, 2)
			for _, first := range []bool{false, true, false} {
				for _, size := range []int{1, 5000, 1 << 20} {
					times := make([]int64, 3)
					play := func(r *Rendezvous, times []int64) func(context.Context) error {
						return func(ctx context.Context) error {
							err := r.Play(ctx, size, first, times)
							over <- struct{}{}
							_, e := r.Exchange(ctx, func(ctx context.Context) ([]byte, error) {
								for len(over)%2 == 1 && ctx.Err() == nil {
									runtime.Gosched()
								}
								return nil, ctx.Err()
							})
							return errors.Join(err, e)
						}
					}
					both(t, play(a, times), play(b, make([]int64, 3)))
					<-over
					<-over
					require.NoError(t, a.Check(size))
					require.NoError(t, b.Check(size))
					for _, x := range times {
						require.Positive(t, x)
					}
				}
			}
			require.ErrorIs(t, a.Play(context.Background(), 2<<20, false, nil), ErrSpan)
		})
	}
}

func TestASilentPeerEndsTheRendezvous(t *testing.T) {
	t.Parallel()
	a, _ := pair(t, "sim", Options{})
	r, err := OpenRendezvous(a.link, a.ep, Options{First: true, Stall: 20 * time.Millisecond}, 20)
	require.NoError(t, err)
	require.Error(t, r.Play(context.Background(), 64, false, make([]int64, 1)), "not connected")
	require.ErrorIs(t, r.wait.until(context.Background(), &r.got, 1, r.Progress), ErrStalled)
	require.NoError(t, r.Close())
}

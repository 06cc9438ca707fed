package pingpong

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/logp"
)

// costly is a link with a simulated clock, which advances when operations are posted: the
// load of the machine has no influence.
type costly struct {
	fabric.Endpoint
	w *costs
}

type costs struct {
	t        atomic.Int64
	op, byte float64 // ns
	posts    atomic.Int64
}

func (e *costly) Post(wrs []fabric.WR) (int, error) {
	n, err := e.Endpoint.Post(wrs)
	for i := range wrs[:n] {
		e.w.t.Add(int64(e.w.op + e.w.byte*float64(wrs[i].Len())))
	}
	e.w.posts.Add(int64(n))
	return n, err
}

// inCosts calibrates over such a link, starting from a model in which an
// operation takes 1 µs and a byte 1 ns.
func inCosts(t *testing.T, w *costs, budget time.Duration) (p, got logp.Params, out *Outcome) {
	t.Helper()
	a, b := pairOver(t, "sim", Options{Span: CalibrationSpan, clock: func() int64 { return w.t.Load() }},
		func(ep fabric.Endpoint) fabric.Endpoint { return &costly{ep, w} })
	p = a.Channel().Params()
	os, err := logp.NewCurve([]logp.Point{{Size: 0, NS: 1, Conf: 1}, {Size: 1 << 20, NS: 1 << 20, Conf: 1}})
	require.NoError(t, err)
	flat, err := logp.NewCurve([]logp.Point{{Size: 0, NS: 0, Conf: 1}, {Size: 1 << 20, NS: 1, Conf: 1}})
	require.NoError(t, err)
	p.Os, p.Or, p.C, p.G, p.Ls, p.Lh, p.CPU = os, flat, flat, 1000, 1, 1, logp.Posting{}
	p.Extra = [logp.NumModes]logp.Extra{}
	var other logp.Params
	var theirs *Outcome
	together(t, a, b, func(ctx context.Context, s *Side) (err error) {
		if s == a {
			got, out, err = s.Calibrate(ctx, p, budget)
		} else {
			other, theirs, err = s.Calibrate(ctx, p, time.Nanosecond)
		}
		return err
	})
	require.Equal(t, got, other)
	require.Equal(t, out.Probes, theirs.Probes)
	return p, got, out
}

// However far off the model is, and whatever the budget, a calibration takes a
// fifth more at the most.
func TestCalibrationKeepsItsBudget(t *testing.T) {
	t.Parallel()
	for _, budget := range []time.Duration{2 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond} {
		for _, w := range []*costs{{op: 300, byte: 0.05}, {op: 10_000, byte: 1}, {op: 1000, byte: 10}, {op: 8000, byte: 8}} {
			before := w.t.Load()
			_, _, out := inCosts(t, w, budget)
			spent := time.Duration(w.t.Load() - before)
			t.Logf("%v, %v and %v ns: took %v, %d probes, %d trips, settled %v, errors %.2f",
				budget, w.op, w.byte, spent, out.Probes, out.Trips, out.Settled, out.Error)
			require.LessOrEqual(t, spent, budget*6/5, "%v ns an operation, %v a byte", w.op, w.byte)
			require.InDelta(t, float64(spent), float64(out.Spent), float64(budget)/20)
			if budget >= 50*time.Millisecond {
				require.Positive(t, out.Probes)
			}
		}
	}
}

// The fitted model predicts batches that were not played.
func TestCalibrationPredicts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		w      *costs
		budget time.Duration
		within float64
	}{{&costs{op: 5000, byte: 1}, 300 * time.Millisecond, 0.15}, {&costs{op: 5000, byte: 1}, 100 * time.Millisecond, 0.2}} {
		p, got, out := inCosts(t, c.w, c.budget)
		for m, h := range out.Fits {
			t.Logf("%v: %+v", logp.Mode(m), h)
			require.Less(t, out.Error[m], c.within)
			require.Less(t, h.After, h.Before)
			require.NotEqual(t, p.Extra[m], got.Extra[m])
		}
	}
}

// Calibrate ends early when the model predicts new batches.
func TestCalibrationSettles(t *testing.T) {
	t.Parallel()
	_, _, out := inCosts(t, &costs{op: 1000, byte: 1}, 2*time.Second)
	require.True(t, out.Settled)
	require.GreaterOrEqual(t, out.Probes, fewest)
	require.Less(t, out.Probes, len(probes))
	require.Less(t, out.Spent, time.Second)
}

func TestPurse(t *testing.T) {
	t.Parallel()
	now := int64(0)
	p := newPurse(func() int64 { return now }, time.Millisecond, 0)
	require.True(t, p.affords(1, logp.Eager, 400_000, 1))
	require.False(t, p.affords(1, logp.Eager, 500_000, 1), "a part is kept for the fit")
	p.learn(logp.Eager, 100, 400)
	require.False(t, p.affords(1, logp.Eager, 120_000, 1))
	require.True(t, p.affords(1, logp.Gather, 120_000, 1))
	p.learn(logp.Eager, 100, 100)
	require.False(t, p.affords(1, logp.Eager, 200_000, 1), "not forgotten at once")
	for range 10 {
		p.learn(logp.Eager, 100, 50)
	}
	require.True(t, p.affords(1, logp.Eager, 400_000, 1), "never taken for faster than predicted")
	require.Zero(t, p.more(600_000, 1))
	require.Equal(t, 2, p.more(100_000, 1), "exactness waits")
	require.Equal(t, maxTrips, p.more(1, 1))
	p.bytes = 1000
	require.Equal(t, 10, p.more(1, 100))
	require.True(t, p.affords(2, logp.Eager, 1, 500))
	require.False(t, p.affords(2, logp.Eager, 1, 501), "more bytes than are left")
	now = 2_000_000
	require.Zero(t, p.more(1, 1))
	require.False(t, p.affords(1, logp.Gather, 1, 1))
}

func TestOutcomeOnTheWire(t *testing.T) {
	t.Parallel()
	var e [logp.NumModes]logp.Extra
	for m := range e {
		e[m] = logp.Extra{Fixed: float64(m) - 7.5, PerOp: 2, PerMessage: -3, PerByte: 0.25, PerFirst: 0.5}
	}
	o := Outcome{Probes: 7, Error: [logp.NumModes]float64{0.1, 1, 0}}
	b := appendOutcome(nil, &e, &o)
	require.Len(t, b, wordSize)
	got, outcome, err := parseOutcome(b)
	require.NoError(t, err)
	require.Equal(t, e, got)
	require.Equal(t, o, outcome)
	for n := range b {
		_, _, err := parseOutcome(b[:n])
		require.ErrorIs(t, err, ErrWrong)
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), -1e300} {
		bad := e
		bad[1].PerByte = x
		_, _, err := parseOutcome(appendOutcome(nil, &bad, &o))
		require.ErrorIs(t, err, logp.ErrParams)
	}
	for _, bad := range []Outcome{{Probes: -1}, {Probes: len(probes) + 1}, {Error: [logp.NumModes]float64{0, 1.5}}, {Error: [logp.NumModes]float64{math.NaN()}}} {
		_, _, err := parseOutcome(appendOutcome(nil, &e, &bad))
		require.ErrorIs(t, err, ErrWrong)
	}
}

func TestOrderOnTheWire(t *testing.T) {
	t.Parallel()
	for _, o := range []order{{}, {orderWarm, 3, logp.Gather, 1}, {orderProbe, byte(len(probes) - 1), logp.Scatter, maxTrips}} {
		got, err := parseOrder(o.append(nil))
		require.NoError(t, err)
		require.Equal(t, o, got)
	}
	for _, o := range []order{
		{numOrders, 0, 0, 1}, {orderEnd, 1, 0, 0}, {orderWarm, byte(len(warm)), 0, 1},
		{orderProbe, byte(len(probes)), 0, 1}, {orderProbe, 0, logp.NumModes, 1}, {orderProbe, 0, 0, maxTrips + 1},
	} {
		_, err := parseOrder(o.append(nil))
		require.ErrorIs(t, err, ErrWrong, "%+v", o)
	}
	for n := range 6 {
		if n != 4 {
			_, err := parseOrder(make([]byte, n))
			require.ErrorIs(t, err, ErrWrong)
		}
	}
}

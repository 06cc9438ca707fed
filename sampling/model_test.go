package sampling

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/logp"
)

// An adapter that is limited by operations up to 3 KiB, then by 13 bytes a ns.
func adapter() *world {
	return &world{
		a: 40, b: 30, g: 220, ls: 900, lh: 350,
		os:  func(m int) float64 { return math.Max(0, float64(m-3072)/16) + float64(m)/64 },
		reg: func(m int) float64 { return 2000 + float64(m)/20 },
	}
}

func checkRecovered(t *testing.T, w *world, r Result, tol float64) {
	t.Helper()
	for i, h := range r.Halves {
		p := h.Params
		near := func(what string, want, got, grain float64) {
			t.Helper()
			require.InDelta(t, want, got, tol*want+grain, "half %d: %s", i, what)
		}
		near("b", w.b, p.CPU.B, 3)
		near("a", w.a, p.CPU.A, 5)
		near("ls", w.ls, p.Ls, 5)
		// What comes back of a read is the data: Os(8) is what the model has for it.
		near("lh", w.lh, p.Lh, 0.1*w.ls)
		for m := 8; m <= 1<<18; m *= 2 {
			// The model is in the end the cost of one more write.
			want := math.Max(w.b, 0) + w.g + w.os(m)
			near("marginal of "+time.Duration(m).String(), want, p.CPU.B+p.G+p.Os.At(int64(m)), 10)
		}
		for m := int64(4 << 10); m <= 1<<18; m *= 4 {
			near("R", w.reg(int(m)), p.R.At(m), 5)
		}
	}
}

func TestKnownParametersAreRecovered(t *testing.T) {
	for _, ls := range []float64{900, 200} { // the trips of the latter are timed several at once
		t.Run(fmt.Sprint(ls), func(t *testing.T) { recovers(t, ls) })
	}
}

func recovers(t *testing.T, ls float64) {
	w := adapter()
	w.ls = ls
	a, b := inWorld(t, w, Options{Mode: Force, MaxSize: 1 << 18})
	r := inTurns(t, w, a, b)
	checkRecovered(t, w, r, 0.03)
	require.Greater(t, r.Conf.G, 0.8)
	// The bend at 3 KiB is between powers of two of which neighbours miss it.
	var extra []int64
	for _, p := range r.Halves[0].Params.Os.Points() {
		if p.Size&(p.Size-1) != 0 {
			extra = append(extra, p.Size)
		}
	}
	require.NotEmpty(t, extra, "points where a line does not do")
	for _, m := range extra {
		require.True(t, m > 1<<10 && m < 32<<10, "extra point at %d, where the curve is straight", m)
	}
}

// By how much longer the link takes to read private memory counts as registering does.
func TestPrivateMemoryIsRegisteredLonger(t *testing.T) {
	w := adapter()
	w.private = func(m int) float64 { return 1500 + float64(m)/10 }
	a, b := inWorld(t, w, Options{Mode: Force, MaxSize: 1 << 18})
	r := inTurns(t, w, a, b)
	reg := w.reg
	w.reg = func(m int) float64 { return reg(m) + w.private(m) } // a copy takes no time in this world
	checkRecovered(t, w, r, 0.03)
}

// Where writes in a chain hold each other up, Os is what a write alone takes.
func TestCrowdedChains(t *testing.T) {
	w := adapter()
	w.crowd = 0.8
	a, b := inWorld(t, w, Options{Mode: Force, MaxSize: 1 << 18})
	for _, h := range inTurns(t, w, a, b).Halves {
		for m := 32 << 10; m <= 1<<18; m *= 2 {
			got := h.Params.Os.At(int64(m))
			require.LessOrEqual(t, got, w.os(m)+w.ls+10, "%d bytes", m)
			require.GreaterOrEqual(t, got, w.os(m)*0.99, "%d bytes", m)
		}
	}
}

func TestRecoveredThroughNoise(t *testing.T) {
	w := adapter()
	w.jitter, w.hiccup = 0.1, 0.02
	a, b := inWorld(t, w, Options{Mode: Force, MaxSize: 1 << 18, Budget: 200 * time.Millisecond})
	checkRecovered(t, w, inTurns(t, w, a, b), 0.2)
}

// The budget of both turns together is kept up to an operation a turn.
func TestBudget(t *testing.T) {
	for _, budget := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 50 * time.Millisecond} {
		w := adapter()
		w.hiccup = 0
		w.os = func(m int) float64 { return float64(m) } // 1 ms for the largest
		a, b := inWorld(t, w, Options{Mode: Force, Budget: budget})
		r := inTurns(t, w, a, b)
		for i, h := range r.Halves {
			// The longest operation begun is a chain that was guessed to fit.
			require.LessOrEqual(t, h.Spent, float64(budget)/2+float64(3<<20), "half %d of %v", i, budget)
			if budget <= 5*time.Millisecond {
				require.True(t, h.Cut)
				require.LessOrEqual(t, h.Spent, 1.2*float64(budget)/2)
			}
		}
		require.Greater(t, r.Halves[0].Params.Os.At(1<<20), 0.9*float64(1<<20), "beyond what was measured the line goes on")
	}
}

// On an idle link the sampling ends before its budget: when it knows enough.
func TestStopsWhenConfident(t *testing.T) {
	w := adapter()
	a, b := inWorld(t, w, Options{Mode: Force, Budget: 10 * time.Second, MaxSize: 1 << 16})
	r := inTurns(t, w, a, b)
	for _, h := range r.Halves {
		require.False(t, h.Cut)
		require.Less(t, h.Spent, 1e8)
		for _, p := range h.Params.Os.Points() {
			require.GreaterOrEqual(t, p.Conf, enough)
		}
	}
}

// What a batch takes is what the model says of it: the sampled parameters, not
// the world's, predict a chain.
func TestSampledModelPredicts(t *testing.T) {
	w := adapter()
	a, b := inWorld(t, w, Options{Mode: Force, MaxSize: 1 << 18})
	r := inTurns(t, w, a, b)
	p := r.Out()
	l := logp.Limits{EagerMax: 1 << 20, EagerBlock: 1 << 20, MaxSGE: 30}
	p.C, p.Or = logp.Curve{}, logp.Curve{} // the world's copies and looks take no time
	for _, n := range []int{1, 4, 32} {
		for _, m := range []int64{8, 1 << 10, 1 << 14, 1 << 17} {
			x := logp.Message{Size: m, Flags: logp.Registered | logp.DestRegistered}
			c, err := p.Cost(&logp.Batch{Messages: slices.Repeat([]logp.Message{x}, n), Limits: l}, logp.Eager)
			require.NoError(t, err)
			want := w.a + w.b*float64(n) + float64(n)*w.os(int(m)) + float64(n-1)*w.g + w.ls
			require.InEpsilon(t, want, c.Total(), 0.05, "%d of %d bytes", n, m)
		}
	}
}

//go:build unix

package main

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/launch/launchtest"
)

func TestMain(m *testing.M) {
	// Steps enough for one worker to come to the solution alone, however late the
	// others are.
	small := options{params: 33, batch: 16, steps: 2500, servers: 1, tolerance: 1e-7}
	run := func(set func(o *options)) launchtest.Role {
		o := small
		set(&o)
		return func(ctx context.Context) error { return run(ctx, o) }
	}
	launchtest.Main(m, map[string]launchtest.Role{
		"double": run(func(*options) {}),
		"single": run(func(o *options) { o.single, o.tolerance = true, 1e-4 }),
		"parts":  run(func(o *options) { o.servers = 2 }),
		"early":  run(func(o *options) { o.steps = 3 }),
		"idle":   run(func(o *options) { o.servers = 2 }),
		"huge":   run(func(o *options) { o.params = math.MaxInt }),
	})
}

// Whoever computes, over whatever link, comes to the solution.
func TestConverges(t *testing.T) {
	for _, c := range []struct {
		n            int
		fabric, role string
		head         string
	}{
		{1, "shm", "double", "33 parameters of float64 on 1 of 1 ranks, 1 workers over shm: 2500 steps"},
		{2, "shm", "single", "33 parameters of float32 on 1 of 2 ranks, 1 workers over shm: 2500 steps"},
		{4, "shm", "double", "33 parameters of float64 on 1 of 4 ranks, 3 workers over shm: 7500 steps"},
		{3, "tcp", "double", "33 parameters of float64 on 1 of 3 ranks, 2 workers over tcp: 5000 steps"},
		{4, "tcp", "parts", "33 parameters of float64 on 2 of 4 ranks, 2 workers over tcp: 5000 steps"},
		{2, "ibv", "double", "33 parameters of float64 on 1 of 2 ranks, 1 workers over ibv: 2500 steps"},
	} {
		t.Run(fmt.Sprintf("%d ranks %s %s", c.n, c.fabric, c.role), func(t *testing.T) {
			launchtest.Parallel(t, c.fabric)
			out := launchtest.Job{N: c.n, Role: c.role, Fabric: c.fabric}.Output(t)
			require.Contains(t, out, "[0] "+c.head)
			require.Contains(t, out, "[0] converged")
		})
	}
}

// What has not converged is an error, not a boast.
func TestStopsEarly(t *testing.T) {
	t.Parallel()
	out, _, err := launchtest.Job{N: 2, Role: "early", Fabric: "shm"}.Run(t)
	require.Error(t, err)
	require.Contains(t, out, "a parameter has an error of")
	require.NotContains(t, out, "converged")
}

func TestNobodyWorks(t *testing.T) {
	t.Parallel()
	out, _, err := launchtest.Job{N: 2, Role: "idle", Fabric: "shm"}.Run(t)
	require.Error(t, err)
	require.Contains(t, out, "want between 1 server and 1, for 2 ranks, not 2")
}

func TestTooManyParameters(t *testing.T) {
	t.Parallel()
	out, _, err := launchtest.Job{N: 2, Role: "huge", Fabric: "shm"}.Run(t)
	require.Error(t, err)
	require.Contains(t, out, "one per server, and at most 16384")
}

// Parts cover the parameters, each once, and fit into windows.
func TestParts(t *testing.T) {
	t.Parallel()
	for size := 1; size <= 9; size++ {
		for servers := 1; servers <= max(1, size-1); servers++ {
			p := place{params: 33, servers: servers, size: size}
			require.NoError(t, p.check())
			next, workers := 0, 0
			for rank := range size {
				if p.serves(rank) {
					from, n := p.part(rank)
					require.Equal(t, next, from)
					require.LessOrEqual(t, p.paramsAt()+8*n, bytesOf[float64](p))
					next += n
				}
				if p.works(rank) {
					workers++
				}
			}
			require.Equal(t, 33, next)
			require.Equal(t, p.workers(), workers)
		}
	}
}

// A step is the gradient: it agrees with differences of the loss.
func TestGradient(t *testing.T) {
	t.Parallel()
	const n, rows = 5, 7
	d := generate[float64](n, 1)
	loss := func(w []float64) (sum float64) {
		for i := range rows {
			r := dot(d.x[i*n:(i+1)*n], w) - d.y[i]
			sum += r * r / 2 / rows
		}
		return sum
	}
	w := []float64{1, -2, 0.5, 3, 0}
	step := make([]float64, n)
	d.descend(step, w, rows, 0.1)
	for i := range w {
		const h = 1e-5
		up, down := append([]float64{}, w...), append([]float64{}, w...)
		up[i] += h
		down[i] -= h
		require.InDelta(t, -0.1*(loss(up)-loss(down))/(2*h), step[i], 1e-7)
	}
}

// The solution is a fixed point, and data differs between workers but not between runs.
func TestData(t *testing.T) {
	t.Parallel()
	w := solution[float64](16)
	a, b := generate[float64](16, 1), generate[float64](16, 2)
	step := make([]float64, 16)
	a.descend(step, w, 64, 1)
	for _, v := range step {
		require.Zero(t, v)
	}
	require.NotEqual(t, a.x, b.x)
	require.Equal(t, a.x, generate[float64](16, 1).x)
}

// Many workers that are all two steps late do not overshoot.
func TestRateBearsDelay(t *testing.T) {
	t.Parallel()
	const n, batch, workers = 24, 8, 5
	w, want := make([]float64, n), solution[float64](n)
	var all []*data[float64]
	for i := range workers {
		all = append(all, generate[float64](n, i))
	}
	rate := rateOf(n, batch, workers)
	var late [][]float64 // two rounds of all
	for range 2000 {
		seen := append([]float64{}, w...)
		for _, d := range all {
			step := make([]float64, n)
			d.descend(step, seen, batch, rate)
			late = append(late, step)
		}
		if len(late) > 2*workers {
			for _, step := range late[:workers] {
				for i, v := range step {
					w[i] += v
				}
			}
			late = late[workers:]
		}
	}
	for i := range w {
		require.Less(t, math.Abs(w[i]-want[i]), 1e-9)
	}
}

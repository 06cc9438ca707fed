package logp

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// finest returns the least cost over all cuts of the sorted order, not only
// those the planner looks at. It prices runs with the tally.
func finest(p *Params, b *Batch, ord []int32) float64 {
	n := len(ord)
	run := func(m Mode, i, j int) float64 {
		t := tally{p: p, b: b, used: AllModes} // fixed costs apart
		for i < j {
			k := take(b, m, ord[i:j])
			t.begin(m)
			for _, x := range ord[i : i+k] {
				if p.Feasible(&b.Limits, b.Messages[x], m) != nil {
					return math.Inf(1)
				}
				t.add(int(x))
			}
			t.end()
			i += k
		}
		return t.c.Total()
	}
	cost := make([][][NumModes]float64, n)
	for i := range cost {
		cost[i] = make([][NumModes]float64, n+1)
		for j := i + 1; j <= n; j++ {
			for m := range Mode(NumModes) {
				cost[i][j][m] = run(m, i, j)
			}
		}
	}
	var r prices
	r.set(p)
	r.bind(&b.Limits)
	best := math.Inf(1)
	for set := ModeSet(1); set <= AllModes; set++ {
		f := make([]float64, n+1)
		for j := 1; j <= n; j++ {
			f[j] = math.Inf(1)
			for i := range j {
				for m := range Mode(NumModes) {
					if set.Has(m) {
						f[j] = min(f[j], f[i]+cost[i][j][m])
					}
				}
			}
		}
		best = min(best, f[n]+r.shared(&b.Wait, set))
	}
	return best
}

// Looking at few cuts of a large batch costs little compared with looking at
// all of them.
func TestFewCutsSuffice(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(71, 1))
	sum, worst, count := 0.0, 0.0, 0
	rounds := cases(120)
	for range rounds {
		p, b := randParams(t, r), rounded(randBatch(r, fewMessages+1+r.IntN(50)))
		b.Limits.Ring = 0 // waiting for credit is no sum over runs
		for i := range b.Messages {
			b.Messages[i].Flags &^= Joined | Urgent
		}
		pl := planner(t, p)
		pl.search = new(search) // its own, to be looked at
		if _, err := pl.Plan(b); err != nil {
			continue
		}
		// In the order in which they are searched, gathers can be cut anywhere:
		// what is left is what few cuts cost.
		c := *b
		c.Messages = nil
		for _, i := range pl.search.ord {
			c.Messages = append(c.Messages, b.Messages[i])
		}
		b = &c
		plan, err := pl.Plan(b)
		require.NoError(t, err)
		best := finest(p, b, pl.search.ord) + pl.search.memory
		excess := plan.Total/best - 1
		count++
		sum += max(excess, 0)
		if excess > worst {
			worst = excess
			t.Logf("%.1f%% over: %v of %d messages, %d cuts", 100*excess, plan, len(b.Messages), len(pl.search.cuts)-1)
		}
	}
	t.Logf("%d plans, mean excess %.2f%%, worst %.1f%%", count, 100*sum/float64(count), 100*worst)
	require.Greater(t, count, rounds/2)
	require.Less(t, sum/float64(count), 0.01)
	require.Less(t, worst, 0.15)
}

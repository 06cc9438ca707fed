package logp

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// least runs f k times in a row, often, and returns the least time of one in
// ns: what the code takes when nobody else has the processor.
func least(rounds, k int, f func(i int)) float64 {
	best := time.Duration(1 << 62)
	for range rounds {
		start := time.Now()
		for i := range k {
			f(i)
		}
		best = min(best, time.Since(start))
	}
	return float64(best) / float64(k)
}

func newShapes(tb testing.TB, mix string, n int) (*Planner, []*Batch) {
	pl, err := NewPlanner(typical(tb), &PlannerConfig{Shapes: -1})
	require.NoError(tb, err)
	var batches []*Batch
	shape := shapes()[mix]
	for range 32 {
		batches = append(batches, shape(n))
	}
	return pl, batches
}

// least-ns/op is the figure to look at on a busy machine.
func BenchmarkPlan(b *testing.B) {
	for _, mix := range []string{"uniform", "heavy", "flags", "ring"} {
		for _, n := range []int{1, 8, 64, 256} {
			b.Run(fmt.Sprintf("new/%s/%d", mix, n), func(b *testing.B) {
				pl, batches := newShapes(b, mix, n)
				plan := func(i int) {
					if _, err := pl.Plan(batches[i%len(batches)]); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					plan(i)
				}
				b.ReportMetric(least(300, len(batches), plan), "least-ns/op")
			})
		}
	}
	for _, n := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprintf("repeated/%d", n), func(b *testing.B) {
			pl := planner(b, typical(b))
			batch := shapes()["heavy"](n)
			plan := func(int) {
				if _, err := pl.Plan(batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				plan(0)
			}
			b.ReportMetric(least(300, 100, plan), "least-ns/op")
		})
	}
}

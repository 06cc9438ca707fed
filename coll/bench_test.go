package coll

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// starts are operations of n elements for each rank.
func starts(n int) map[string]func(t *Team, one, two, all, all2 []float64) *Request {
	return map[string]func(t *Team, one, two, all, all2 []float64) *Request{
		"Barrier":   func(t *Team, _, _, _, _ []float64) *Request { return StartBarrier(t) },
		"Bcast":     func(t *Team, one, _, _, _ []float64) *Request { return StartBcast(t, 0, one) },
		"Allreduce": func(t *Team, one, two, _, _ []float64) *Request { return StartAllreduce(t, one, two, Sum) },
		"Alltoall":  func(t *Team, _, _, all, all2 []float64) *Request { return StartAlltoall(t, all, all2) },
	}
}

// One goroutine starts the operation on each of two ranks, and waits for both: the work of
// the processors, without waits of one rank for another.
func BenchmarkWork(b *testing.B) {
	ctx := context.Background()
	ts := worlds(b, job(b, 2, "shm"))
	for _, op := range []string{"Barrier", "Bcast", "Allreduce", "Alltoall"} {
		for _, n := range []int{1, 1 << 17} {
			if n > 1 && op == "Barrier" {
				continue
			}
			b.Run(fmt.Sprintf("%s/%d", op, 8*n), func(b *testing.B) {
				start := starts(n)[op]
				var bufs [2][4][]float64
				for r := range bufs {
					bufs[r] = [4][]float64{make([]float64, n), make([]float64, n), make([]float64, 2*n), make([]float64, 2*n)}
				}
				b.ReportAllocs()
				for b.Loop() {
					var reqs [2]*Request
					for r, m := range bufs {
						reqs[r] = start(ts[r], m[0], m[1], m[2], m[3])
					}
					for _, q := range reqs {
						require.NoError(b, q.Wait(ctx))
					}
				}
			})
		}
	}
}

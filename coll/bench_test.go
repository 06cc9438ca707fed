package coll

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
// the processors, without waits of one rank for another. It waits for rank 1 first: a broadcast
// that ends with a barrier needs rank 1 to pass the data before rank 0 can go on, and nobody
// drives the engine of rank 1 while the goroutine waits for rank 0.
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
					for _, q := range slices.Backward(reqs[:]) {
						require.NoError(b, q.Wait(ctx))
					}
				}
			})
		}
	}
}

// Each rank has a goroutine, which makes blocking calls one after the other.
func BenchmarkLatency(b *testing.B) {
	ctx := context.Background()
	for _, p := range []int{2, 4, 8} {
		ts := worlds(b, job(b, p, "shm"))
		for _, n := range []int{0, 1, 32, 128, 1 << 10, 1 << 13, 1 << 17} {
			calls := map[string]func(t *Team, one, two []float64) error{
				"Barrier":   func(t *Team, _, _ []float64) error { return Barrier(ctx, t) },
				"Bcast":     func(t *Team, one, _ []float64) error { return Bcast(ctx, t, 0, one) },
				"Reduce":    func(t *Team, one, two []float64) error { return Reduce(ctx, t, 0, one, two, Sum) },
				"Allreduce": func(t *Team, one, two []float64) error { return Allreduce(ctx, t, one, two, Sum) },
			}
			for _, op := range []string{"Barrier", "Bcast", "Reduce", "Allreduce"} {
				if (op == "Barrier") != (n == 0) {
					continue
				}
				b.Run(fmt.Sprintf("%d/%s/%d", p, op, 8*n), func(b *testing.B) {
					b.ReportAllocs()
					each(b, ts, func(_ int, t *Team) error {
						one, two := make([]float64, n), make([]float64, n)
						for range b.N {
							if err := calls[op](t, one, two); err != nil {
								return err
							}
						}
						return nil
					})
				})
			}
		}
	}
}

// A team is made, performs its first operation, by an algorithm that is not chosen by prediction, and is closed.
func BenchmarkTeam(b *testing.B) {
	ctx := context.Background()
	es := job(b, 2, "shm")
	ts := worlds(b, es)
	each(b, ts, func(_ int, t *Team) error { return Barrier(ctx, t) })
	b.ResetTimer()
	each(b, ts, func(r int, _ *Team) error {
		for range b.N {
			t, err := New(ctx, es[r], []int{0, 1}, "pair")
			if err == nil {
				err = errors.Join(t.Force(byFlags), Barrier(ctx, t), t.Close())
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

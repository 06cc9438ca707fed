package rma

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/cpu"
)

// All ranks of a job share the processors of this host, so all of them spin for as
// long as fits their number, and messages between more ranks than processors arrive.
func TestSpinPolicyOfAJob(t *testing.T) {
	t.Parallel()
	cpus := cpu.Allowed().Len()
	for _, size := range []int{2, min(2*cpus+1, 9)} {
		es := simulate(t, size, "sim")
		for _, e := range es {
			require.Equal(t, cpu.For(float64(size)/float64(cpus), cpus), e.prog.SpinPolicy())
		}
		together(t, es, func(ctx context.Context, e *Engine) error {
			right, left := e.Peer((e.Rank()+1)%size), e.Peer((e.Rank()+size-1)%size)
			var b [8]byte
			for range 20 {
				r := left.Recv(b[:])
				if err := right.Send(b[:]).Wait(ctx); err != nil {
					return err
				}
				if _, err := r.Wait(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

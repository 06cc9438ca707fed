package bench

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/cpu"
)

func TestSpinnerFitsTheRanks(t *testing.T) {
	looks := func(r Request) (n int) {
		s := r.spinner()
		require.Equal(t, r.Pin, s.Locked)
		for s.Wait() == 0 {
			n++
			require.Less(t, n, 10_000, "spins without ever yielding")
		}
		require.Zero(t, testing.AllocsPerRun(1000, func() { s.Wait() }))
		return n
	}
	sum := func(p cpu.SpinPolicy) int { return p.Polls + p.Pauses }
	require.Equal(t, sum(cpu.Default()), looks(Request{}))
	require.Equal(t, sum(cpu.Roomy), looks(Request{Ranks: 1, Pin: true}))
	many := cpu.Crowded
	if cpu.Allowed().Len() == 1 {
		many = cpu.Single
	}
	for _, pin := range []bool{true, false} {
		require.Equal(t, sum(many), looks(Request{Ranks: maxRanks, Pin: pin}))
	}
}

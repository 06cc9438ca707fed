package logp

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// script reads a batch from fuzz input: limits, waits, then 9 bytes a message.
func script(in []byte) *Batch {
	next := func(n int) uint64 {
		var b [8]byte
		copy(b[:n], in)
		in = in[min(n, len(in)):]
		return binary.LittleEndian.Uint64(b[:])
	}
	b := &Batch{Limits: Limits{
		EagerMax: int64(next(4)) - 1, EagerInPlace: int64(next(2)), EagerBlock: int64(next(3)), GatherMax: int64(next(5)), GatherCopy: int64(next(3)),
		MaxSGE: int32(next(1)), ScatterSegs: int32(next(1)), Header: int32(next(1)), Segment: int32(next(1)),
		DescSegment: int32(next(2)), ReadRequest: int32(next(1)), Cursor: next(1)&1 != 0,
	}}
	for m := range b.Wait {
		b.Wait[m] = float64(next(3))
	}
	for len(in) > 0 && len(b.Messages) <= MaxMessages {
		flags := next(1)
		b.Messages = append(b.Messages, Message{Size: int64(next(int(flags>>5)) - flags>>7), Flags: Flags(flags & (2*knownFlags + 1))})
	}
	return b
}

// Whatever the batch: an error of the right kind, or a plan that carries every
// message once within all limits and costs no more than the best single mode.
func FuzzPlan(f *testing.F) {
	f.Add(uint64(1), []byte("limits of some kind and then messages of sizes and flags"))
	f.Add(uint64(2), []byte{0xf0, 0x0f, 0, 0, 0, 16, 0, 0, 0, 2, 0, 0, 0, 1, 0, 4, 8, 16, 16, 32, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		0x23, 64, 0x23, 64, 0x43, 0, 64, 0x63, 0, 0, 16, 0x33, 64, 0x2b, 9})
	f.Add(uint64(3), make([]byte, 300))
	f.Fuzz(func(t *testing.T, seed uint64, in []byte) {
		r := rand.New(rand.NewPCG(seed, 7))
		p, b := randParams(t, r), script(in)
		pl, err := NewPlanner(p, &PlannerConfig{Shapes: 2})
		require.NoError(t, err)
		if r.IntN(4) == 0 {
			pl.policy = Policy{Forced: true, Mode: Mode(r.IntN(NumModes))}
		}
		plan, err := pl.Plan(b)
		if err != nil {
			if b.Validate() != nil {
				require.ErrorIs(t, err, ErrBatch)
			} else {
				require.ErrorIs(t, err, ErrInfeasible)
				some := false
				for _, m := range b.Messages {
					some = some || modesOf(p, &b.Limits, m) == 0
				}
				require.True(t, some, "every message can go somehow, but there is no plan")
			}
			return
		}
		require.False(t, math.IsNaN(plan.Total) || math.IsInf(plan.Total, 0))
		total := plan.Total
		require.NoError(t, checkParts(p, b, plan.Parts))
		c := p.PlanCost(rounded(b), plan.Parts)
		require.InEpsilon(t, 1+c.Total(), 1+total, 1e-9)
		if pl.policy.Free() {
			best := singles(p, rounded(b))
			require.LessOrEqual(t, total, best+1e-6*math.Abs(best))
		}
		again, err := pl.Plan(b)
		require.NoError(t, err)
		require.Equal(t, total, again.Total, "from the cache")
		_, err = pl.Explain(b)
		require.NoError(t, err)
	})
}

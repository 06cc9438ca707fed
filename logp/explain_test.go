package logp

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every candidate is what Cost says, the plan is what Plan says, and table and
// JSON carry the same numbers.
func TestExplain(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(61, 1))
	for range cases(400) {
		p, b := randParams(t, r), randBatch(r, r.IntN(30))
		pl := planner(t, p)
		e, err := pl.Explain(b)
		if err != nil {
			require.ErrorIs(t, err, ErrInfeasible)
			continue
		}
		plan, err := pl.Plan(b)
		require.NoError(t, err)
		require.Len(t, e.Candidates, NumModes+1)
		require.InEpsilon(t, 1+plan.Total, 1+e.Plan().Cost.Total(), 1e-9)
		require.NoError(t, checkParts(p, b, e.Plan().Parts))
		for m := range Mode(NumModes) {
			c := &e.Candidates[m]
			want, err := p.Cost(rounded(b), m)
			require.Equal(t, err, c.Err)
			if err != nil {
				continue
			}
			require.Equal(t, want, c.Cost)
			require.NoError(t, checkParts(p, b, c.Parts))
			again := p.PlanCost(rounded(b), c.Parts)
			require.InEpsilon(t, 1+want.Total(), 1+again.Total(), 1e-9, "parts of the candidate")
			require.Equal(t, want.Ops, again.Ops)
		}
		raw, err := json.Marshal(e)
		require.NoError(t, err)
		var back struct {
			Messages   int
			Reason     string
			Candidates []struct {
				Name  string
				Total float64            `json:"total_ns"`
				Terms map[string]float64 `json:"terms"`
			}
		}
		require.NoError(t, json.Unmarshal(raw, &back))
		require.Equal(t, len(b.Messages), back.Messages)
		for i, c := range back.Candidates {
			sum := 0.0
			for _, x := range c.Terms {
				sum += x
			}
			require.InDelta(t, e.Candidates[i].Cost.Total(), c.Total, 1e-6)
			require.InDelta(t, c.Total, sum, 1e-6*(1+c.Total), c.Name)
		}
		text := e.String()
		require.Contains(t, text, "total")
		require.Contains(t, text, e.Reason)
		require.NotContains(t, text, "NaN")
	}
}

func TestExplainSaysWhy(t *testing.T) {
	t.Parallel()
	p := thesis(t)
	pl := planner(t, p)
	reason := func(b *Batch) string {
		e, err := pl.Explain(b)
		require.NoError(t, err)
		return e.Reason
	}
	require.Equal(t, "nothing to send", reason(&Batch{}))
	require.Contains(t, reason(&Batch{Messages: uniform(16, 64), Limits: usual()}), "one mode is cheapest: gather×16")
	require.Contains(t, reason(&Batch{Messages: []Message{{Size: 5000}}, Limits: usual()}), "no other mode can carry everything")
	b := &Batch{Messages: uniform(16, 64), Limits: usual()}
	b.Messages[3].Flags |= Urgent
	require.Contains(t, reason(b), "1 of them eager because urgent")
	forced, err := NewPlanner(p, &PlannerConfig{Policy: Policy{Forced: true, Mode: Scatter}})
	require.NoError(t, err)
	e, err := forced.Explain(&Batch{Messages: uniform(16, 64), Limits: usual()})
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(e.Reason, "forced mode: scatter×16"), e.Reason)
	free, err := NewPlanner(&Params{}, nil)
	require.NoError(t, err)
	e, err = free.Explain(&Batch{Messages: uniform(2, 64), Limits: usual()})
	require.NoError(t, err)
	require.Contains(t, e.Reason, "costs the same, and takes")
}

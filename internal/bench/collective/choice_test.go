package collective

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bench/choice"
)

// cellOf returns a cell of an allreduce by ring or doubling, of which doubling is chosen.
func cellOf(auto, doubling, ring []float64) ChoiceResult {
	r := ChoiceResult{ChoiceCell: ChoiceCell{Op: "allreduce", Size: 64, Ranks: 2, Fabric: "shm", Chosen: "doubling"}, Auto: Time{Algorithm: automatic, Rounds: auto},
		Forced: []Time{{Algorithm: "doubling", PredictedUS: 12, Rounds: doubling}, {Algorithm: "ring", PredictedUS: 4, Rounds: ring}}}
	r.fill()
	return r
}

func TestChoiceArithmetic(t *testing.T) {
	t.Parallel()
	r := cellOf([]float64{90, 12, 11}, []float64{10, 10, 90}, []float64{8, 9, 7})
	require.Equal(t, "ring", r.Best)
	require.InDelta(t, 8, r.Forced[1].US, 1e-12, "the median")
	require.InDelta(t, 0.5, r.Regret, 1e-12)
	require.InDelta(t, 0.2, r.Choosing, 1e-12)
	require.InDelta(t, 0.25, r.Noise, 1e-12)
	require.InDelta(t, 0.2, r.Forced[0].Error, 1e-12)
	require.InDelta(t, -0.5, r.Forced[1].Error, 1e-12)
	require.InDelta(t, 12, r.Auto.PredictedUS, 1e-12)
	require.InDelta(t, 0, r.Auto.Error, 1e-12)
	require.Less(t, r.Regret95.Lo, r.Regret)
	require.Greater(t, r.Regret95.Hi, r.Regret)

	// Rounds that do not differ leave no uncertainty, and an operation without a choice is
	// not counted.
	same := cellOf([]float64{10, 10, 10}, []float64{10, 10, 10}, []float64{20, 20, 20})
	require.Equal(t, choice.Interval{}, same.Regret95)
	only := ChoiceResult{ChoiceCell: ChoiceCell{Op: "scan", Fabric: "shm", Chosen: "dissemination"}, Auto: Time{Rounds: []float64{30}},
		Forced: []Time{{Algorithm: "dissemination", PredictedUS: 3, Rounds: []float64{10}}}}
	only.fill()
	s := SummarizeChoice([]ChoiceResult{r, same, only})
	require.True(t, s.Summary)
	require.Equal(t, 2, s.Cells)
	require.Equal(t, "shm", s.Fabric)
	require.InDelta(t, 0.25, s.MeanRegret, 1e-12)
	require.InDelta(t, 0.5, s.Within10pct, 1e-12)
	require.Equal(t, choice.Interval{Lo: 0.5, Hi: 0.5}, s.Within10pct95, "one cell in every draw")
	require.InDelta(t, 0.1, s.MedianChoosing, 1e-12)
	require.InDelta(t, 0.5, s.MedianAbsPredictionError, 1e-12, "of 0.2, 0.5, 0.2, 0.8, 0.7")
	require.InDelta(t, 0.2, s.Chosen, 1e-12, "of 0, 0.2, 0.9")
	require.Zero(t, SummarizeChoice(nil).Cells)
}

// There is a line for each algorithm, with the figures of the cell.
func TestChoiceLines(t *testing.T) {
	t.Parallel()
	r := cellOf([]float64{12}, []float64{10}, []float64{8})
	var b bytes.Buffer
	w := NewChoiceWriter(&b, "json")
	require.NoError(t, w.Write(r))
	require.NoError(t, w.Close(SummarizeChoice([]ChoiceResult{r})))
	d := json.NewDecoder(&b)
	for _, want := range []struct {
		alg           string
		us, predicted float64
	}{{"doubling", 10, 12}, {"ring", 8, 4}, {"auto", 12, 12}} {
		var l map[string]any
		require.NoError(t, d.Decode(&l))
		for k, v := range map[string]any{"op": "allreduce", "size": 64., "ranks": 2., "fabric": "shm", "algorithm": want.alg, "predicted_us": want.predicted,
			"us": want.us, "chosen": "doubling", "best": "ring", "regret": 0.5} {
			require.Equal(t, v, l[k], "%s of %s", k, want.alg)
		}
	}
	var s ChoiceSummary
	require.NoError(t, d.Decode(&s))
	require.True(t, s.Summary)
	require.False(t, d.More())
}

func TestCells(t *testing.T) {
	t.Parallel()
	r := Request{Ops: []string{"barrier", "bcast"}, Sizes: []int{8, 16, 64}, Ranks: 65, Rounds: 1, Time: time.Second}
	require.Equal(t, 4, r.Cells())
	require.NoError(t, r.Check())
	r.Choice = true
	require.ErrorIs(t, r.Check(), ErrRequest, "no prediction")
	r.Ranks = 64
	require.NoError(t, r.Check())
}

//go:build unix

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bench/collective"
)

func TestColl(t *testing.T) {
	t.Parallel()
	ops := strings.Join(collective.Ops, ",")
	code, out, errs := rmabench(t, "coll", "--ops", ops, "--sizes", "8,8K", "--ranks", "3", "--rounds", "1", "--time", "1ms", "--format", "json", "--fabric", "shm")
	require.Equal(t, exitOK, code, errs)
	seen := map[string]int{}
	for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
		var r collective.Result
		require.NoError(t, d.Decode(&r))
		require.Positive(t, r.US)
		require.GreaterOrEqual(t, r.MaxUS, r.US*0.999)
		require.Equal(t, 3, r.Ranks)
		seen[r.Op]++
	}
	require.Len(t, seen, len(collective.Ops))
	require.Equal(t, 1, seen["barrier"])
	require.Equal(t, 2, seen["alltoall"])
	code, out, errs = rmabench(t, "coll", "--ops", "allreduce", "--sizes", "64", "--ranks", "1,2", "--rounds", "1", "--time", "1ms")
	require.Equal(t, exitOK, code, errs)
	require.Equal(t, 2, strings.Count(out, "allreduce"), "a line for each number of ranks")
	for bad, says := range map[string]string{"--ops fold": `operation "fold"`, "--ops=": "no operation", "--sizes 7": "size 7", "--sizes=": "empty list", "--ranks 0": "0 ranks",
		"--ranks 300": "300 ranks: want 1 to 256", "--ranks=": "--ranks", "--fabric x": "x", "--format xml": "xml", "--rounds 0": "0 rounds", "--rounds 1001": "1001 rounds",
		"--time 0s": "0s for a series", "--time 2m": "2m0s for a series", "--ranks 2,0": "0 ranks", "--choice --ranks 65": "65 ranks", "--sizes 1G --ranks 2": "of 2 ranks together",
		"--sizes 64M --ranks 16": "of 16 ranks together"} {
		code, out, errs := rmabench(t, append([]string{"coll"}, strings.Fields(bad)...)...)
		require.Equal(t, exitUsage, code, bad)
		require.Contains(t, errs, says, bad)
		require.Empty(t, out, bad)
	}
}

// A list of algorithms that is wrong is reported once, as wrong use, before a rank is started.
func TestCollWrongAlgorithm(t *testing.T) {
	t.Setenv("RMA_COLL_ALGORITHM", "allreduce=fast")
	for _, args := range [][]string{{"coll"}, {"coll", "--choice"}} {
		code, out, errs := rmabench(t, args...)
		require.Equal(t, exitUsage, code, errs)
		require.Empty(t, out)
		require.Equal(t, 1, strings.Count(errs, "allreduce=fast"), errs)
		require.Contains(t, errs, "RMA_COLL_ALGORITHM")
	}
}

// Every algorithm is measured beside the automatic choice, whatever the environment forces.
func TestCollChoice(t *testing.T) {
	t.Setenv("RMA_COLL_ALGORITHM", "allreduce=ring,bcast=chain")
	code, out, errs := rmabench(t, "coll", "--choice", "--ops", "allreduce,bcast,barrier", "--sizes", "8,64K", "--ranks", "2", "--rounds", "3", "--time", "1ms", "--format", "json", "--fabric", "shm")
	require.Equal(t, exitOK, code, errs)
	type line struct {
		Summary      bool
		Cells        int
		Op           string
		Size         int
		Algorithm    string
		Chosen, Best string
		PredictedUS  float64 `json:"predicted_us"`
		US           float64
		Regret       float64
		RoundsUS     []float64 `json:"rounds_us"`
	}
	type cell struct {
		op   string
		size int
	}
	us, figures := map[cell]map[string]float64{}, map[cell]line{}
	d := json.NewDecoder(strings.NewReader(out))
	for range 2*4 + 2*4 + 2 {
		var l line
		require.NoError(t, d.Decode(&l))
		require.Positive(t, l.PredictedUS)
		require.Len(t, l.RoundsUS, 3)
		k := cell{l.Op, l.Size}
		if us[k] == nil {
			us[k] = map[string]float64{}
		}
		us[k][l.Algorithm], figures[k] = l.US, l
	}
	var s line
	require.NoError(t, d.Decode(&s))
	require.True(t, s.Summary)
	require.Equal(t, 4, s.Cells, "a barrier has no choice")
	require.False(t, d.More())
	require.Len(t, us, 5)
	for k, m := range us {
		l := figures[k]
		require.Contains(t, m, l.Chosen)
		for alg, x := range m {
			require.Positive(t, x)
			require.True(t, alg == "auto" || x >= m[l.Best], "%v: %s", k, alg)
		}
		require.InDelta(t, m["auto"]/m[l.Best]-1, l.Regret, 1e-9)
	}
	require.Equal(t, "binomial", figures[cell{"bcast", 64 << 10}].Chosen, "for two ranks")
	require.Equal(t, "dissemination", figures[cell{"barrier", 0}].Best)

	code, out, errs = rmabench(t, "coll", "--choice", "--ops", "gather", "--sizes", "64", "--ranks", "2,3", "--rounds", "1", "--time", "1ms")
	require.Equal(t, exitOK, code, errs)
	require.Equal(t, 2, strings.Count(out, "\ngather"))
	require.Contains(t, out, "within 10 %")
	require.Contains(t, out, "2 cells with a choice")
}

//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/coll"
	"github.com/seed33544411/rma/internal/bench/collective"
	"github.com/seed33544411/rma/sampling"
)

func TestColl(t *testing.T) {
	t.Parallel()
	ops := strings.Join(collective.Ops, ",")
	out, _ := succeeds(t, "coll", "--ops", ops, "--sizes", "8,8K", "--ranks", "3", "--rounds", "1", "--time", "1ms", "--format", "json", "--fabric", "shm")
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
	out, _ = succeeds(t, "coll", "--ops", "allreduce", "--sizes", "64", "--ranks", "1,2", "--rounds", "1", "--time", "1ms")
	require.Equal(t, 2, strings.Count(out, "allreduce"), "a line for each number of ranks")
	out, _ = succeeds(t, "coll", "--ops", "barrier", "--ranks", "2", "--bind", "compact", "--rounds", "1", "--time", "1ms")
	require.Contains(t, out, "compact")
	for bad, says := range map[string]string{"--ops fold": `operation "fold"`, "--ops=": "no operation", "--sizes 7": "size 7", "--sizes=": "empty list", "--ranks 0": "0 ranks",
		"--ranks 300": "300 ranks: want 1 to 256", "--ranks=": "--ranks", "--fabric x": "x", "--format xml": "xml", "--rounds 0": "0 rounds", "--rounds 1001": "1001 rounds",
		"--time 0s": "0s for a series", "--time 2m": "2m0s for a series", "--ranks 2,0": "0 ranks", "--choice --ranks 65": "65 ranks", "--choice --ranks 2,1": "1 ranks: the choice", "--sizes 1G --ranks 2": "of 2 ranks together",
		"--sizes 64M --ranks 16": "of 16 ranks together",
		"--ranks 2 --hosts 3":    "2 ranks on 3 hosts", "--hosts -1": "-1 hosts", "--hosts 0": "0 hosts", "--hosts 2 --fabric shm": "other hosts", "--hosts 2 --peers mpich": "not with --hosts",
		"--bind spread": `binding "spread": want one of [auto none scatter compact]`} {
		refused(t, says, append([]string{"coll"}, strings.Fields(bad)...)...)
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

// Ranks that count as those of several hosts have an algorithm that crosses between them once.
func TestCollHosts(t *testing.T) {
	t.Parallel()
	out, _ := succeeds(t, "coll", "--choice", "--ops", "barrier,allreduce", "--sizes", "8", "--ranks", "4", "--hosts", "2", "--rounds", "1", "--time", "1ms", "--format", "json")
	require.Equal(t, 2, strings.Count(out, `"algorithm":"hierarchy"`), out)
	out, _ = succeeds(t, "coll", "--ops", "barrier", "--ranks", "4", "--hosts", "2", "--rounds", "1", "--time", "1ms")
	require.Contains(t, out, "barrier")
}

// Two copies are measured beside the copies that are chosen otherwise, cell by cell.
func TestCollTwoCopies(t *testing.T) {
	t.Parallel()
	args := strings.Fields("coll --sizes 8,64K --ranks 2 --fabric shm --time 1us --two-copies")
	out, _ := succeeds(t, append(args, "--ops", "alltoall,barrier", "--rounds", "2", "--format", "json")...)
	rs := jsonLines[collective.Result](t, out)
	require.Len(t, rs, 6)
	for i, r := range rs {
		require.Equal(t, []string{"", collective.TwoCopies}[i%2], r.Peer, out)
		require.Equal(t, i%2 == 1, r.Ratio > 0, out)
		require.Equal(t, rs[i/2*2].Size, r.Size)
	}
	out, _ = succeeds(t, append(args, "--ops", "alltoall", "--rounds", "1", "--plot")...)
	require.Contains(t, out, "two-copies shm    alltoall:64K")
	for _, bad := range []string{"--two-copies", "--two-copies --fabric tcp", "--two-copies --fabric shm --choice"} {
		refused(t, "--two-copies: want --fabric shm", append([]string{"coll"}, strings.Fields(bad)...)...)
	}
}

// Libraries that are not installed are named and left out; one that fails is a failure, and what
// was measured is kept.
func TestCollPeers(t *testing.T) {
	args := strings.Fields("coll --ops scan,barrier --sizes 8,64 --ranks 2 --fabric shm --time 1us --format json --peers openmpi,mpich --rounds")
	code, out, errs := rmabench(t, append(args, "2")...)
	require.Equal(t, exitOK, code, errs)
	rs := jsonLines[collective.Result](t, out)
	require.Equal(t, []string{"scan", "", "scan"}, []string{rs[0].Op, rs[0].Peer, rs[1].Op})
	n := 0
	for _, name := range []string{"openmpi", "mpich"} {
		if strings.Contains(errs, "left out: "+name) {
			continue
		}
		n++
		for _, k := range []collective.Result{{Op: "scan", Size: 8}, {Op: "scan", Size: 64}, {Op: "barrier"}} {
			i := slices.IndexFunc(rs, func(r collective.Result) bool { return r.Peer == name && r.Op == k.Op && r.Size == k.Size })
			require.GreaterOrEqual(t, i, 0, "%s of %s", k.Op, name)
			r := rs[i]
			require.True(t, 0 < r.RatioMin && r.RatioMin <= r.Ratio && r.Ratio <= r.RatioMax, "%+v", r)
			require.Equal(t, 2, r.Ranks)
			require.Positive(t, r.US)
		}
	}
	require.Len(t, rs, 3*(1+n))

	dir := t.TempDir()
	t.Setenv("PATH", dir)
	args = append(args, "1")
	code, out, errs = rmabench(t, args...)
	require.Equal(t, exitOK, code, errs)
	require.Len(t, jsonLines[collective.Result](t, out), 3)
	require.Contains(t, errs, "left out: openmpi")
	require.Contains(t, errs, "left out: mpich")
	require.Contains(t, errs, "apt-get install -y --no-install-recommends")

	for name, script := range map[string]string{
		"mpicc.mpich":  "#!/bin/sh\nwhile [ \"$1\" != -o ] && [ $# -gt 0 ]; do shift; done\n[ -z \"$2\" ] || echo >\"$2\"\n",
		"mpirun.mpich": "#!/bin/sh\necho no ranks today >&2\nexit 3\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))
	}
	code, out, errs = rmabench(t, args...)
	require.Equal(t, exitFailed, code, errs)
	require.Len(t, jsonLines[collective.Result](t, out), 3)
	require.Equal(t, 1, strings.Count(errs, "no ranks today"), "%s: left out after the first failure", errs)

	for bad, says := range map[string]string{"--peers lam --fabric shm": "want some of openmpi", "--peers openmpi": "want shm or tcp", "--peers openmpi --choice": "not with --choice",
		"--plot": "want --peers", "--plot --peers mpich --fabric shm --format json": "table"} {
		refused(t, says, append([]string{"coll"}, strings.Fields(bad)...)...)
	}
}

// Ratios are drawn for each number of ranks.
func TestCollPlot(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	require.NoError(t, plotRatios(&b, []collective.Result{
		{Op: "scan", Size: 8, Ranks: 2, Fabric: "shm", US: 2}, {Op: "scan", Size: 8, Ranks: 2, Fabric: "shm", Peer: "mpich", US: 3, Ratio: 1.5, RatioMin: 1.2, RatioMax: 1.7},
		{Op: "scan", Size: 8, Ranks: 4, Fabric: "shm", US: 4}, {Op: "scan", Size: 8, Ranks: 4, Fabric: "shm", Peer: "mpich", US: 3, Ratio: 0.75, RatioMin: 0.7, RatioMax: 0.8},
	}))
	require.Contains(t, b.String(), "\n2 ranks")
	require.Contains(t, b.String(), "\n4 ranks")
	require.Equal(t, 2, strings.Count(b.String(), "mpich    shm    scan:8"))
	require.Contains(t, b.String(), "0.75\n")
}

// Every algorithm is measured beside the automatic choice, whatever the environment forces.
func TestCollChoice(t *testing.T) {
	t.Setenv("RMA_COLL_ALGORITHM", "allreduce=ring")
	out, _ := succeeds(t, "coll", "--choice", "--ops", "allreduce,bcast,barrier", "--sizes", "8,64K", "--ranks", "2", "--rounds", "3", "--time", "1ms", "--format", "json", "--fabric", "shm")
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
	var l line
	n := 0
	for ; ; n++ {
		l = line{}
		require.NoError(t, d.Decode(&l))
		if l.Summary {
			break
		}
		require.Positive(t, l.PredictedUS)
		require.Len(t, l.RoundsUS, 3)
		k := cell{l.Op, l.Size}
		if us[k] == nil {
			us[k] = map[string]float64{}
		}
		us[k][l.Algorithm], figures[k] = l.US, l
	}
	require.Len(t, us, 5)
	require.Equal(t, 5, l.Cells)
	p, want := sampling.Defaults("shm"), 0
	for k := range us {
		algorithms, err := coll.Predict(&p, true, k.op, k.size, 2)
		require.NoError(t, err)
		want += 1 + len(algorithms) // and the automatic choice
	}
	require.Equal(t, want, n)
	// Two rounds are never predicted to be faster than one: the variable has not forced the choice.
	require.NotEqual(t, "ring", figures[cell{"allreduce", 8}].Chosen)
	require.False(t, d.More())
	for k, m := range us {
		l := figures[k]
		require.Contains(t, m, l.Chosen)
		for alg, x := range m {
			require.Positive(t, x)
			require.True(t, alg == "auto" || x >= m[l.Best], "%v: %s", k, alg)
		}
		require.InDelta(t, m["auto"]/m[l.Best]-1, l.Regret, 1e-9)
	}

	out, _ = succeeds(t, "coll", "--choice", "--ops", "gather", "--sizes", "64", "--ranks", "2,3", "--rounds", "1", "--time", "1ms")
	require.Equal(t, 2, strings.Count(out, "\ngather"))
	require.Contains(t, out, "within 10 %")
	require.Contains(t, out, "2 cells with a choice")
}

// Operations are measured with both places of the progress goroutine, and by a library if it is
// installed; report draws the lines.
func TestNBC(t *testing.T) {
	t.Parallel()
	lines := filepath.Join(t.TempDir(), "nbc.jsonl")
	ops := []string{"barrier", "exscan"}
	code, out, errs := rmabench(t, "nbc", "--ops", strings.Join(ops, ","), "--sizes", "64", "--ranks", "2", "--fabric", "shm", "--rounds", "2", "--time", "1us", "--progress", "default,placed",
		"--peers", "openmpi", "--format", "json", "--out", lines)
	require.Equal(t, exitOK, code, errs)
	require.Empty(t, out)
	text, err := os.ReadFile(lines)
	require.NoError(t, err)
	series := map[string]map[string]int{}
	for _, h := range jsonLines[collective.Hidden](t, string(text)) {
		require.Equal(t, collective.NBC, h.What)
		require.True(t, h.Pure > 0 && h.CPU > 0 && h.Both > 0 && h.Overlap >= 0 && h.Overlap <= 100, "%+v", h)
		was := h.Overlap
		h.Derive()
		require.InDelta(t, was, h.Overlap, 1e-9)
		if series[h.Series()] == nil {
			series[h.Series()] = map[string]int{}
		}
		series[h.Series()][h.Op]++
	}
	want := 3 - strings.Count(errs, "left out: ")
	require.Len(t, series, want)
	for name, measured := range series {
		require.Len(t, measured, len(ops), name)
		for op, n := range measured {
			require.Equal(t, 2, n, "rounds of %s by %s", op, name)
		}
	}
	dir := t.TempDir()
	code, _, errs = rmabench(t, "report", "--fabrics", "none", "--add", lines, "--out", dir)
	require.Equal(t, exitOK, code, errs)
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	require.NoError(t, err)
	require.Equal(t, want, strings.Count(string(page), `<figure id="nbc-2-shm-`))

	code, out, errs = rmabench(t, "nbc", "--ops", "scan", "--sizes", "8,64", "--rounds", "1", "--time", "1us")
	require.Equal(t, exitOK, code, errs)
	require.Equal(t, 2, strings.Count(out, "rma, default"))
	for bad, says := range map[string]string{"--progress here": "want some of default, placed", "--progress=": "want some of", "--ops fold": `operation "fold"`, "--peers lam --fabric shm": "want some of openmpi"} {
		refused(t, says, append([]string{"nbc"}, strings.Fields(bad)...)...)
	}
}

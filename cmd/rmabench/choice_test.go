//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bench/choice"
	"github.com/seed33544411/rma/internal/wireup"
	"github.com/seed33544411/rma/logp"
)

// tinyGrid writes a grid that is fast on any machine.
func tinyGrid(t *testing.T) string {
	name := filepath.Join(t.TempDir(), "grid.json")
	require.NoError(t, os.WriteFile(name, []byte(`{"n":[1,16],"mixes":["64","64K","bimodal"]}`), 0o600))
	return name
}

func TestChoiceOverRealProcesses(t *testing.T) {
	for _, fabric := range fabrics {
		t.Run(fabric, func(t *testing.T) {
			page := filepath.Join(t.TempDir(), "choice.html")
			out, _ := succeeds(t, briefly("choice", "--fabric", fabric, "--grid", tinyGrid(t), "--time", "5ms", "--rounds", "3", "--format", "json", "--html", page)...)
			rs, ss, err := choice.Read(strings.NewReader(out))
			require.NoError(t, err)
			require.Len(t, rs, 6)
			require.Len(t, ss, 1)
			require.Equal(t, 6, ss[0].Cells)
			require.False(t, ss[0].Cut)
			for _, r := range rs {
				require.Equal(t, fabric, r.Fabric)
				m := r.Modes
				for _, x := range []float64{m.Eager, m.Gather, m.Scatter, r.AutoUS, r.Predicted.Eager, r.Predicted.Gather, r.Predicted.Scatter, r.PredictedAuto} {
					require.Positive(t, x)
					require.Less(t, x, 60e6)
				}
				require.InDelta(t, r.AutoUS/min(m.Eager, m.Gather, m.Scatter)-1, r.Regret, 1e-9)
				require.NotEmpty(t, r.Plan)
				require.GreaterOrEqual(t, r.Noise, 0.0)
				require.Len(t, r.Series.Auto, 3)
				require.LessOrEqual(t, r.Regret95.Lo, r.Regret95.Hi)
				if r.N == 1 && r.Plan == r.Best+"×1" {
					require.InDelta(t, r.Regret, *r.Choosing, 1e-9)
				}
			}
			html, err := os.ReadFile(page)
			require.NoError(t, err)
			require.Contains(t, string(html), "<h2>"+fabric+"</h2>")
			require.Contains(t, string(html), "bimodal")
			require.Contains(t, string(html), "Cost of choosing, %")
		})
	}
}

func TestChoiceOfPiecesOverRealProcesses(t *testing.T) {
	grid := filepath.Join(t.TempDir(), "grid.json")
	require.NoError(t, os.WriteFile(grid, []byte(`{"n":[16],"mixes":["64","bimodal"],"layouts":["scattered","spread","collected"]}`), 0o600))
	for _, fabric := range fabrics {
		for _, op := range []string{"put", "get"} {
			t.Run(fabric+"/"+op, func(t *testing.T) {
				out, _ := succeeds(t, "choice", "--op", op, "--fabric", fabric, "--grid", grid, "--time", "5ms", "--rounds", "3", "--no-calibration", "--format", "json", "--sampling", "20ms")
				ls := strings.Split(strings.TrimSpace(out), "\n")
				require.Len(t, ls, 7)
				for _, l := range ls[:6] {
					var r choice.PiecesResult
					require.NoError(t, json.Unmarshal([]byte(l), &r))
					require.Equal(t, [2]string{fabric, op}, [2]string{r.Fabric, r.Op})
					require.Equal(t, 16, r.N)
					for _, x := range []float64{r.Ways.Chain, r.Ways.Group, r.AutoUS, r.Predicted.Chain, r.Predicted.Group, r.PredictedAuto} {
						require.Positive(t, x)
					}
					require.InDelta(t, r.AutoUS/min(r.Ways.Chain, r.Ways.Group)-1, r.Regret, 1e-9)
					require.Len(t, r.Series.Auto, 3)
					if r.Size == "64" && r.Layout == choice.Scattered {
						require.InDelta(t, 1, r.Groups, 1e-9, "16 × 64 bytes fit one group")
					}
				}
				var sum choice.PiecesSummary
				require.NoError(t, json.Unmarshal([]byte(ls[6]), &sum))
				require.Equal(t, 6, sum.Cells)
				require.False(t, sum.Cut)
			})
		}
	}
}

func TestExplainPieces(t *testing.T) {
	t.Parallel()
	out, _ := succeeds(t, briefly("explain", "--op", "get", "--fabric", "shm", "--batch", "64x64", "--measure", "--time", "5ms", "--rounds", "1")...)
	for _, want := range []string{"64 pieces of a get, 4096 bytes over shm", "chain", "group", "predicted", "measured"} {
		require.Contains(t, out, want)
	}
}

func TestExplainCollective(t *testing.T) {
	t.Parallel()
	code, out, errs := rmabench(t, "explain", "--coll", "allreduce", "--size", "1M", "--ranks", "6", "--fabric", "shm")
	require.Equal(t, exitOK, code, errs)
	for _, want := range []string{"allreduce of 1048576 bytes by 6 ranks over shm", "fastest: ", "  ring ", "  doubling ", "  halving "} {
		require.Contains(t, out, want)
	}
	code, out, errs = rmabench(t, "explain", "--coll", "barrier", "--ranks", "10", "--hosts", "2", "--latency", "500ms", "--fabric", "shm") // against which what a busy machine measures is little
	require.Equal(t, exitOK, code, errs)
	for _, want := range []string{"barrier of 8 bytes by 10 ranks over shm on 2 hosts, and between them tcp of 500000 µs, each with a processor", "fastest: hierarchy\n", "  dissemination "} {
		require.Contains(t, out, want)
	}
}

func TestChoiceEndsWithItsBudget(t *testing.T) {
	t.Parallel()
	out, _ := succeeds(t, briefly("choice", "--fabric", "shm", "--grid", "small", "--time", "1ms", "--rounds", "1", "--budget", "1ns", "--format", "json")...)
	rs, ss, err := choice.Read(strings.NewReader(out))
	require.NoError(t, err)
	require.Empty(t, rs)
	require.Len(t, ss, 1)
	require.True(t, ss[0].Cut)
}

func TestExplainOverRealProcesses(t *testing.T) {
	for _, fabric := range fabrics {
		t.Run(fabric, func(t *testing.T) {
			out, _ := succeeds(t, briefly("explain", "--fabric", fabric, "--batch", "8x128,1x1M", "--measure", "--time", "5ms", "--rounds", "3", "--format", "json")...)
			var x choice.Explanation
			require.NoError(t, json.Unmarshal([]byte(out), &x))
			require.Equal(t, 9, x.Messages)
			require.Equal(t, int64(8*128+1<<20), x.Bytes)
			require.Len(t, x.Ways, 4)
			for _, w := range x.Ways {
				if w.Err != "" {
					continue
				}
				require.Positive(t, w.MeasuredUS)
				total := 0.0
				for _, v := range w.Terms {
					total += v
				}
				require.InEpsilon(t, w.PredictUS, total, 1e-6)
			}
			require.Equal(t, "plan", x.Ways[3].Name)
			require.NotEmpty(t, x.Reason)
		})
	}
}

func TestExplainWithoutMeasuring(t *testing.T) {
	t.Parallel()
	out, _ := succeeds(t, briefly("explain", "--fabric", "shm", "--batch", "64x64")...)
	require.Contains(t, out, "plan: ")
	require.Contains(t, out, "predicted")
	require.NotRegexp(t, `(?m)^ *measured `, out, "a row of times")
	require.Contains(t, out, "peer: class host", "how near it is")
	require.Contains(t, out, "copies: string instruction from ")
}

func TestChoiceUsageErrors(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"choice --fabric pigeon": "want auto", "choice --grid nowhere.json": "neither default nor small", "choice --rounds 0": "positive", "choice --rounds -1": "rounds",
		"choice --time -1s": "a cell", "choice --format xml": "want table", "choice --sampling 1h": "sampling budget", "choice 8": "unexpected argument", "choice --seed x": "invalid argument", "choice --op send": "want message", "choice --op put --html x": "not with --op", "choice --add x": "the page of --html", "switch --add x": "the page of --html", "ablate --op put": "unknown flag",
		"explain": "batch", "ablate --fabric x": "want auto", "ablate --grid small": "requires --mixing", "ablate --mixing --seeds -1": "seeds", "explain --batch 8y": "batch", "explain --coll fold": "operation of package coll", "explain --coll bcast --measure": "excludes", "explain --coll bcast --size 1,2": "one size", "explain --coll bcast --hosts 9": "8 ranks on 9 hosts", "explain --coll bcast --hosts 2 --between shm": "want tcp", "explain --batch 8 --ranks 4": "--ranks requires --coll", "explain --rails 1s:1,1s:1 --hosts 2": "--hosts requires --coll", "explain --batch 8 --size 8": "--size requires", "explain --coll bcast --hosts 2 --latency -1us": "want a positive time", "explain --coll bcast --op get": "not with --coll", "explain --coll bcast --hosts 0": "want 1 or more", "explain --rails 1s:Inf,1s:1": "positive number of MB/s", "explain --rails 1s:1": "want 2 to 4", "explain --rails 1s:1,1s:1 --coll bcast": "excludes", "explain --rails 1s:1,1s:1 --size x": "size", "explain --rails 1s:1,1s:1 --format x": "format", "explain --batch 0x8": "batch", "explain --grid small": "unknown flag", "choice --recalibrate -1": "every", "explain --batch 8 --time 0s": "positive",
	} {
		refused(t, says, strings.Fields(args)...)
	}
}

func TestAblateOverRealProcesses(t *testing.T) {
	t.Parallel()
	for _, fabric := range fabrics {
		t.Run(fabric, func(t *testing.T) {
			out, _ := succeeds(t, briefly("ablate", "-q", "--fabric", fabric, "--time", "1ms", "--rounds", "1", "--format", "json")...)
			ls := strings.Split(strings.TrimSpace(out), "\n")
			require.Len(t, ls, choice.AblationRows())
			seen := map[string]bool{}
			for _, l := range ls {
				var a choice.Ablation
				require.NoError(t, json.Unmarshal([]byte(l), &a))
				require.Equal(t, fabric, a.Fabric)
				require.Equal(t, len(a.Variants), len(a.US))
				require.Equal(t, len(a.Variants), len(a.Ratio))
				for i, us := range a.US {
					require.Positive(t, us)
					require.InEpsilon(t, us/a.US[0], a.Ratio[i], 1e-9)
				}
				seen[a.Study] = true
			}
			require.Len(t, seen, 8)
		})
	}
}

// A table is compared in every cell, and decides what is explained. One without a section for
// the link is an error, not a comparison without it.
func TestTableOverRealProcesses(t *testing.T) {
	t.Parallel()
	quick := []string{"--fabric", "shm", "--time", "5ms", "--rounds", "3", "--sampling", "20ms", "--calibration", "20ms", "--format", "json"}
	code, out, errs := rmabench(t, append([]string{"choice", "--grid", tinyGrid(t), "--table", "tcp:*=eager;1x4K=eager,4K=gather", "-q"}, quick...)...)
	require.Equal(t, exitOK, code, errs)
	rs, ss, err := choice.Read(strings.NewReader(out))
	require.NoError(t, err)
	require.Len(t, ss, 1)
	require.NotNil(t, ss[0].OverTable)
	for _, r := range rs {
		require.Positive(t, r.TableUS)
		require.InDelta(t, r.TableUS/r.AutoUS-1, r.OverTable, 1e-9)
	}
	code, out, errs = rmabench(t, append([]string{"explain", "--batch", "4x64,1x2M", "--table", "shm:64@1=eager,4K=gather", "--measure"}, quick...)...)
	require.Equal(t, exitOK, code, errs)
	var x choice.Explanation
	require.NoError(t, json.Unmarshal([]byte(out), &x))
	require.Equal(t, []logp.Row{{Number: 1, Rule: "64@1=eager", Messages: 1}, {Number: 2, Rule: "4K=gather", Messages: 3}, {Messages: 1}}, x.Rows)
	require.Equal(t, "scatter×1 + eager×1 + gather×3", x.Plan)
	require.Contains(t, x.Reason, "manual table")
	require.Positive(t, x.Ways[len(x.Ways)-1].MeasuredUS)
	code, _, errs = rmabench(t, append([]string{"explain", "--batch", "4x64", "--table", "tcp:*=eager"}, quick...)...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, `"tcp:*=eager" has no section for shm`)
}

// Without --table, the table of the settings decides, if it has a section for the link.
func TestTableOfSettings(t *testing.T) {
	explain := func(table string) (code int, x choice.Explanation, errs string) {
		t.Setenv("RMA_MODE_TABLE", table)
		code, out, errs := rmabench(t, "explain", "--batch", "4x64", "--fabric", "shm", "--time", "5ms", "--rounds", "3", "--sampling", "20ms", "--calibration", "20ms", "--format", "json")
		if code == exitOK {
			require.NoError(t, json.Unmarshal([]byte(out), &x))
		}
		return code, x, errs
	}
	code, x, errs := explain("shm:64=gather")
	require.Equal(t, exitOK, code, errs)
	require.Equal(t, []logp.Row{{Number: 1, Rule: "64=gather", Messages: 4}}, x.Rows)
	code, x, errs = explain("tcp:64=gather")
	require.Equal(t, exitOK, code, errs)
	require.Empty(t, x.Rows)
	code, _, errs = explain("64=swift")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, `RMA_MODE_TABLE="64=swift"`)
}

func TestMixingOverRealProcesses(t *testing.T) {
	t.Parallel()
	code, out, errs := rmabench(t, "ablate", "--mixing", "--fabric", "shm", "--grid", tinyGrid(t), "--seeds", "2", "--time", "5ms", "--rounds", "3",
		"--sampling", "20ms", "--calibration", "20ms", "--format", "json", "-q")
	require.Equal(t, exitOK, code, errs)
	cells := map[string]int{}
	for line := range strings.Lines(out) {
		var m choice.Mixing
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		require.Equal(t, "shm", m.Fabric)
		require.Greater(t, m.OverThresholds.Mean, -1.0)
		require.NotZero(t, m.OverThresholds.Mean)
		cells[m.Mix] = m.Cells
	}
	require.Equal(t, map[string]int{"64": 2, "64K": 2, "bimodal": 4, "all": 8}, cells, "random sizes are drawn twice")
}

// A request leaves the flags as they are, also on a rank that reads no files.
func TestRequestLeavesTheFlags(t *testing.T) {
	for name, value := range map[string]string{wireup.EnvRank: "1", wireup.EnvSize: "2", wireup.EnvRoot: "tcp:127.0.0.1:1", wireup.EnvToken: strings.Repeat("5a", 16)} {
		t.Setenv(name, value)
	}
	require.True(t, showsNothing())
	f := &choiceFlags{fabric: "shm", op: choice.OpMessage, outFlags: outFlags{format: "table"}, html: "page", add: []string{"lines"}}
	_, err := f.request(func(string) bool { return false }, func(r *choice.Request) error {
		r.Ablate = true
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"lines"}, f.add)
}

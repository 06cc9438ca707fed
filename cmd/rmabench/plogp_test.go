//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/sampling"
)

// sampleQuick keeps samplings short; their results are rough.
func sampleQuick(args ...string) []string {
	return append([]string{"plogp", "--budget", "20ms", "--max", "16K"}, args...)
}

func TestPlogpOverRealProcesses(t *testing.T) {
	dir := t.TempDir()
	var added []string
	for _, fabric := range fabrics {
		r, out := sampledCurves(t, fabric)
		require.Equal(t, fabric, r.Fabric)
		require.Equal(t, "x", r.Label)
		require.NotEmpty(t, r.Machine.Kernel)
		require.Positive(t, r.Halves[0].Samples)
		require.Positive(t, r.Halves[1].Samples)
		require.NoError(t, r.Tables.Both.Validate())
		require.Nil(t, r.Changes)
		file := filepath.Join(dir, fabric+".jsonl")
		require.NoError(t, os.WriteFile(file, []byte(out), 0o600))
		added = append(added, "--add", file)
	}
	// The page shows both results without a measurement.
	out := filepath.Join(dir, "page")
	text, _ := succeeds(t, append([]string{"plogp", "--fabric", "none", "--format", "html", "--out", out}, added...)...)
	require.Contains(t, text, "gap between operations")
	page, err := os.ReadFile(filepath.Join(out, "plogp.html"))
	require.NoError(t, err)
	for _, want := range []string{"<svg", `id="copy"`, "shm, x", "tcp, x", "</html>"} {
		require.Contains(t, string(page), want)
	}
	lines, err := os.ReadFile(filepath.Join(out, "plogp.jsonl"))
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(lines), "\n"))
}

// sampledCurves samples until all curves have points: within a short budget the other
// process may get no processor.
func sampledCurves(t *testing.T, fabric string) (r bench.PlogpResult, out string) {
	t.Helper()
	for budget := 20 * time.Millisecond; ; budget *= 4 {
		out, _ := succeeds(t, append(sampleQuick("--fabric", fabric, "--format", "json", "--label", "x"), "--budget", budget.String())...)
		rs, err := bench.ReadPlogp(strings.NewReader(out))
		require.NoError(t, err, out)
		require.Len(t, rs, 1)
		if b := rs[0].Tables.Both; drawn(b.Os) > 1 && drawn(b.C) > 1 || 4*budget > 10*time.Second {
			return rs[0], out
		}
	}
}

// drawn returns the number of points of a curve that are on logarithmic axes from 1 ns: a
// process that is starved has only those of copies that take less.
func drawn(c logp.Curve) (n int) {
	for _, p := range c.Points() {
		if p.NS >= 1 && p.Size >= 1 {
			n++
		}
	}
	return n
}

func TestPlogpSavesAndCompares(t *testing.T) {
	dir := t.TempDir()
	code, _, errs := rmabench(t, sampleQuick("--fabric", "shm", "--save", "--profiles", dir)...)
	require.Equal(t, exitOK, code, errs)
	es, err := filepath.Glob(filepath.Join(dir, "plogp-shm-host*.json"))
	require.NoError(t, err)
	require.Len(t, es, 1)

	// The machine decides whether there is drift; the text and the exit code agree.
	code, out, errs := rmabench(t, sampleQuick("--fabric", "shm", "--compare", "--profiles", dir)...)
	require.Contains(t, out, "against the saved profile of ", errs)
	require.Equal(t, strings.Contains(out, "no drift"), code == exitOK, out)

	// A changed link: the saved gap is a second.
	b, err := os.ReadFile(es[0])
	require.NoError(t, err)
	var p map[string]any
	require.NoError(t, json.Unmarshal(b, &p))
	tables := p["tables"].(map[string]any)
	tables["both"].(map[string]any)["g"] = 1e9
	tables["conf"].(map[string]any)["g"] = 1
	b, err = json.Marshal(p)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(es[0], b, 0o600))
	code, out, _ = rmabench(t, sampleQuick("--fabric", "shm", "--compare", "--profiles", dir, "--format", "json")...)
	rs, err := bench.ReadPlogp(strings.NewReader(out))
	require.NoError(t, err)
	require.True(t, rs[0].Saved)
	for _, c := range rs[0].Changes {
		if c.Name == "g" {
			require.Equal(t, 1e9, c.Old)
			require.Less(t, c.New, 1e9)
			require.Equal(t, rs[0].Tables.Conf.G >= 0.5, c.Drift)
		}
	}
	require.Equal(t, rs[0].Drift, code == exitFailed)

	code, out, errs = rmabench(t, sampleQuick("--fabric", "shm", "--compare", "--profiles", t.TempDir())...)
	require.Contains(t, out, "against a sampling just before", errs)
	require.Equal(t, strings.Contains(out, "no drift"), code == exitOK, out)
}

// A profile with fitted batches, as an engine's first start would save it.
func TestPlogpCalibrates(t *testing.T) {
	for _, fabric := range fabrics {
		dir := t.TempDir()
		out, _ := succeeds(t, sampleQuick("--fabric", fabric, "--calibrate", "1500ms", "--save", "--profiles", dir)...)
		require.Contains(t, out, "beyond that, fitted to ")
		es, err := filepath.Glob(filepath.Join(dir, "*.json"))
		require.NoError(t, err)
		require.Len(t, es, 1)
		b, err := os.ReadFile(es[0])
		require.NoError(t, err)
		p, err := sampling.ParseProfile(b)
		require.NoError(t, err)
		require.Positive(t, p.Tables.Fit.Probes)
		require.Equal(t, p.Tables.Both.Extra, p.Tables.Forward.Extra)
		require.Equal(t, p.Tables.Both.Extra, p.Tables.Backward.Extra)
	}
}

func TestPlogpRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"--fabric", "pigeon"}, {"--fabric", "none"}, {"--format", "csv"}, {"--budget", "0"}, {"--budget", "1h"}, {"--budget", "1us"},
		{"--max", "5000"}, {"--max", "1G"}, {"--max", "4K,8K"}, {"--add", "x"}, {"--rounds", "3"}, {"extra"},
	} {
		code, _, errs := rmabench(t, append([]string{"plogp"}, args...)...)
		require.Equal(t, exitUsage, code, "%v: %s", args, errs)
		require.NotEmpty(t, errs)
	}
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.jsonl")
	require.NoError(t, os.WriteFile(bad, []byte(`{"fabric":"shm"}`), 0o600))
	code, _, errs := rmabench(t, "plogp", "--fabric", "none", "--format", "html", "--out", dir, "--add", bad)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "not a result of plogp")
}

func TestStartupOverRealProcesses(t *testing.T) {
	for _, fabric := range fabrics {
		code, out, errs := rmabench(t, "plogp", "--fabric", fabric, "--startup", "--rounds", "3", "--budget", "10ms", "--format", "json")
		require.Equal(t, exitOK, code, errs)
		rs := jsonLines[bench.Startup](t, out)
		require.Len(t, rs, 1)
		r := rs[0]
		require.Equal(t, fabric, r.Fabric)
		require.Equal(t, 3, r.Rounds)
		require.True(t, r.Off > 0 && r.Cached > 0 && r.Measured > 0 && r.Noise >= 0, "%+v", r)
	}
	for _, args := range []string{"--save", "--compare", "--format html", "--fabric none --format html --add x", "--rounds 0", "--connect a:1"} {
		code, _, errs := rmabench(t, append([]string{"plogp", "--startup", "--profiles", t.TempDir()}, strings.Fields(args)...)...)
		require.Equal(t, exitUsage, code, "%s: %s", args, errs)
	}
}

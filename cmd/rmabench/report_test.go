//go:build unix

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/report"
	"github.com/seed33544411/rma/internal/bench/session"
)

func results(t *testing.T, path string) []bench.Result {
	t.Helper()
	var rep report.Report
	require.NoError(t, readFile(path, rep.Add))
	return rep.Results
}

// Parameters and choices of the model are in the page, in its lines, and in pages made from
// those lines.
func TestReportShowsTheModel(t *testing.T) {
	dir := t.TempDir()
	_, errs := succeeds(t, "report", "--fabrics", "tcp", "--tests", "lat", "--ops", "send", "--sizes", "8,4K", "--time", "1ms", "--choice-budget", "500ms", "--out", dir)
	require.Contains(t, errs, "(100 %)")
	require.Contains(t, errs, "tcp concurrent, ping beside 1") // the last step
	check := func(dir string) {
		page, err := os.ReadFile(filepath.Join(dir, "report.html"))
		require.NoError(t, err)
		for _, want := range []string{"Automatic choice compared with forced modes", "Regret, %", "Sampled parameters", "A batch explained", "66 messages", "Bandwidth around the switches", "batches of 16", "Communication during computation", "Latency beside other work", `id="reactivity-handler"`, `id="threads-put-signals"`, `id="concurrent-ping-messages-65536"`, "</html>"} {
			require.Contains(t, string(page), want)
		}
	}
	check(dir)
	var rep report.Report
	lines := filepath.Join(dir, "results.jsonl")
	require.NoError(t, readFile(lines, rep.Add))
	require.Len(t, rep.Results, 2)
	require.Len(t, rep.Plogp, 1)
	require.NotEmpty(t, rep.Cells)
	require.Len(t, rep.Summaries, 1)
	require.Len(t, rep.Curves, 2)
	require.Len(t, rep.Explained, 1)
	require.Len(t, rep.Overlaps, 9+4+6+4)

	merged := t.TempDir()
	succeeds(t, "report", "--fabrics", "none", "--add", lines, "--out", merged)
	check(merged)
}

// A report whose comparison is cut by its budget counts what is left out, and ends with all points.
func TestReportCutByItsBudget(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, errs := succeeds(t, "report", "--fabrics", "shm", "--tests", "lat", "--ops", "send", "--sizes", "8", "--time", "1ms", "--choice-budget", "1ns", "--out", dir)
	require.Contains(t, errs, "(100 %)")
	var rep report.Report
	require.NoError(t, readFile(filepath.Join(dir, "results.jsonl"), rep.Add))
	require.Empty(t, rep.Cells)
	require.Len(t, rep.Curves, 2, "what follows is measured")
}

func TestReportOverRealProcesses(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "out")
	out, errs := succeeds(t, "report", "--choice", "none", "--fabrics", "shm,tcp", "--ops", "put,get,fadd", "--sizes", "8:64", "--time", "1ms", "--progress", "all", "--out", dir)
	rs := results(t, filepath.Join(dir, "results.jsonl"))
	// each fabric: lat 4+4+1, bw 4+4, rate 3
	require.Len(t, rs, 2*(9+8+3))
	require.Equal(t, 40, strings.Count(errs, "\n"), "a line of progress a point: %s", errs)
	require.Contains(t, errs, "40/40 tcp rate fadd 8")
	require.Contains(t, out, "report.html: 40 points")
	require.Regexp(t, `(?m)^latency, median.*\n +shm +tcp\nput +8 +[\d.]+ +[\d.]+\nget +8 `, out)
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	require.NoError(t, err)
	require.Equal(t, 5, bytes.Count(page, []byte("<svg")))

	// Lines measured elsewhere are added; nothing is measured.
	lines := filepath.Join(t.TempDir(), "vm.jsonl")
	out, errs = succeeds(t, "report", "--choice", "none", "--fabrics", "shm", "--tests", "lat", "--ops", "put", "--sizes", "8,16", "--time", "1ms", "--label", "elsewhere", "--format", "json", "--out", lines, "-q")
	require.Empty(t, out+errs)
	require.Len(t, results(t, lines), 2)
	merged := t.TempDir()
	succeeds(t, "report", "--fabrics", "none", "--add", filepath.Join(dir, "results.jsonl"), "--add", lines, "--out", merged)
	require.Len(t, results(t, filepath.Join(merged, "results.jsonl")), 42)
	page, err = os.ReadFile(filepath.Join(merged, "report.html"))
	require.NoError(t, err)
	require.Contains(t, string(page), "shm elsewhere")
}

// elsewhere returns a command for --verbs-by: it prints messages like a booting machine,
// reports progress, and writes lines.
func elsewhere(t *testing.T, lines, end string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "vm")
	require.NoError(t, os.WriteFile(name, []byte(`#!/bin/sh
echo booting
echo "1/1 verbs rate put 8" >&2
echo "the device is up" >&2
while [ "$1" != --out ]; do shift; done
cp `+lines+` "$2"
`+end+"\n"), 0o755))
	return name
}

func TestReportOfVerbsElsewhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lines := filepath.Join(dir, "lines")
	require.NoError(t, os.WriteFile(lines, []byte(`{"test":"rate","fabric":"verbs","op":"put","size":8,"iters":9,"mmsg_s":0.125,"seconds":1}`+"\n"), 0o644))
	args := []string{"report", "--choice", "none", "--choice-budget", "5s", "--fabrics", "shm,verbs", "--tests", "rate", "--ops", "put", "--time", "1ms", "--progress", "all", "--out", dir, "--verbs-by"}
	code, out, errs := rmabench(t, append(args, elsewhere(t, lines, ""))...)
	require.Equal(t, exitOK, code, errs)
	require.Regexp(t, `(?m)^ +shm.* +verbs\nput +8 +[\d.]+ +0.125$`, out)
	require.Contains(t, errs, "2/2 verbs rate put 8\n")
	require.NotContains(t, out+errs, "booting")
	log, err := os.ReadFile(filepath.Join(dir, "verbs.log"))
	require.NoError(t, err)
	require.Equal(t, "booting\nthe device is up\n", string(log))
	require.Len(t, results(t, filepath.Join(dir, "results.jsonl")), 2)

	// It fails: the end and the name of the log are shown, and the other fabrics reported.
	code, out, errs = rmabench(t, append(args, elsewhere(t, lines, `echo "$@"; exit 3`))...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "exit status 3")
	require.Contains(t, errs, "--choice none --choice-budget 5s ")
	require.Contains(t, errs, filepath.Join(dir, "verbs.log"))
	require.Contains(t, errs, "the device is up")
	require.Contains(t, out, "verbs was not measured")
	require.Len(t, results(t, filepath.Join(dir, "results.jsonl")), 1)

	code, _, errs = rmabench(t, "report", "--verbs-by", " ")
	require.Equal(t, exitUsage, code, errs)
}

// A named fabric is not available: the others are measured and reported, and the page and
// the exit code show the failure.
func TestReportGoesOnWithoutAFabric(t *testing.T) {
	t.Parallel()
	for _, f := range session.Usable() {
		if f == "verbs" {
			t.Skip("this machine has an RDMA device: no fabric is missing")
		}
	}
	dir := t.TempDir()
	code, out, errs := rmabench(t, "report", "--choice", "none", "--fabrics", "verbs,shm", "--tests", "rate", "--ops", "put", "--time", "1ms", "--out", dir)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "verbs: 0 of 1 points measured")
	require.Contains(t, out, "shm")
	require.Len(t, results(t, filepath.Join(dir, "results.jsonl")), 1)
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	require.NoError(t, err)
	require.Contains(t, string(page), "verbs: 0 of 1 points measured")

	// No results: no file.
	file := filepath.Join(dir, "v.jsonl")
	code, _, errs = rmabench(t, "report", "--choice", "none", "--fabrics", "verbs", "--tests", "rate", "--ops", "put", "--format", "json", "--out", file)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "verbs")
	require.NoFileExists(t, file)
}

func TestReportRefusesBadFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.jsonl")
	require.NoError(t, os.WriteFile(bad, []byte("{\"test\":\"lat\"}\n"), 0o644))
	empty := filepath.Join(dir, "empty.jsonl")
	require.NoError(t, os.WriteFile(empty, []byte("\n"), 0o644))
	for _, f := range []string{bad, empty, filepath.Join(dir, "none.jsonl"), dir} {
		code, _, errs := rmabench(t, "report", "--fabrics", "none", "--add", f, "--out", filepath.Join(dir, "o"))
		require.Equal(t, exitFailed, code)
		require.Contains(t, errs, "--add")
	}
	code, _, errs := rmabench(t, "report", "--fabrics", "none", "--add", bad, "--out", bad)
	require.Equal(t, exitFailed, code, errs)
}

// An interrupt ends a sweep at once without leaving a partial file.
func TestReportInterrupted(t *testing.T) {
	t.Parallel()
	var o bytes.Buffer
	code := run(t.Context(), []string{"report", "--choice", "none", "--fabrics", "shm", "--tests", "lat", "--ops", "get", "--sizes", "8:4M", "--time", "1h", "--iters", "1"},
		streams{strings.NewReader(""), &o, &o})
	require.Equal(t, exitUsage, code, "report has no --iters: %s", o.String())
	for _, out := range []string{"", "lines.jsonl"} {
		ctx, cancel := context.WithCancel(context.Background())
		dir := t.TempDir()
		args := []string{"report", "--choice", "none", "--fabrics", "shm", "--tests", "lat", "--ops", "get", "--sizes", "8:4M", "--time", "50ms", "--out", filepath.Join(dir, out)}
		if out != "" {
			args = append(args, "--format", "json")
		}
		r := &cancelAfter{cancel: cancel}
		code = run(ctx, args, streams{strings.NewReader(""), &o, r})
		require.Equal(t, exitInterrupted, code)
		require.Equal(t, "rmabench: interrupted\n", r.after.String(), "nothing that ranks say of each other")
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, files)
	}
}

// cancelAfter cancels at the first line of progress, and keeps what is written after it.
type cancelAfter struct {
	cancel func()
	after  bytes.Buffer
}

func (c *cancelAfter) Write(b []byte) (int, error) {
	if c.cancel == nil {
		return c.after.Write(b)
	}
	c.cancel()
	c.cancel = nil
	return len(b), nil
}

//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/choice"
	"github.com/seed33544411/rma/internal/bench/compare"
	"github.com/seed33544411/rma/internal/bench/overlap"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/verbs"
)

// jsonLines parses one JSON object a line.
func jsonLines[T any](t *testing.T, out string) (rows []T) {
	t.Helper()
	for line := range strings.Lines(out) {
		var r T
		require.NoError(t, json.Unmarshal([]byte(line), &r), line)
		rows = append(rows, r)
	}
	return rows
}

func TestRendezvousOverRealProcesses(t *testing.T) {
	for _, fabric := range fabrics {
		out, errs := succeeds(t, "rendezvous", "--fabric", fabric, "--sizes", "64K,1M", "--rounds", "2", "--time", "2ms", "--window", "4", "--format", "json")
		require.Contains(t, errs, "12/12 (100 %), about 0s left: "+fabric+" bw get", "progress")
		rows := jsonLines[bench.Beside](t, out)
		require.Len(t, rows, 2)
		for _, r := range rows {
			require.Equal(t, fabric, r.Fabric)
			require.Equal(t, "scatter", r.Ways.String())
			require.True(t, 0 < r.RatioMin && r.RatioMin <= r.Ratio && r.Ratio <= r.RatioMax, "%+v", r)
		}
	}
}

// A program in PATH with the name of the peer's, which always fails; or none.
func TestCompareWithoutItsPeer(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	code, out, errs := rmabench(t, "compare", "--fabric", "shm", "--tests", "rate:64")
	require.Equal(t, exitMissing, code)
	require.Empty(t, out)
	require.Contains(t, errs, "apt-get install -y --no-install-recommends ucx-utils")
	require.Contains(t, errs, "--install")

	require.NoError(t, os.WriteFile(dir+"/ucx_perftest", []byte("#!/bin/sh\necho no such transport >&2\nexit 3\n"), 0o755))
	page := filepath.Join(t.TempDir(), "page.html")
	code, out, errs = rmabench(t, "compare", "--fabric", "shm", "--tests", "rate:64", "--check", "--plot", "--html", page)
	b, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(b), "not measured")
	require.Equal(t, exitFailed, code, errs)
	require.Contains(t, out, "not measured")
	require.Contains(t, out, "no such transport")
}

// Without a device, or without cgo, the error has the reason.
func TestCompareWithoutADevice(t *testing.T) {
	t.Setenv(links.EnvDevice, "")
	if devs, _ := verbs.Devices(); len(devs) > 0 {
		t.Setenv(links.EnvDevice, "no-such-device")
	}
	code, out, errs := rmabench(t, "compare", "--fabric", "verbs")
	require.Equal(t, exitFailed, code)
	require.Empty(t, out)
	require.Regexp(t, "^rmabench: .*: (no such RDMA device|not supported: )", errs)
}

func TestCompareWithUCX(t *testing.T) {
	if _, err := exec.LookPath("ucx_perftest"); err != nil {
		t.Skip("ucx_perftest is not installed (ucx-utils)")
	}
	for _, fabric := range fabrics {
		out, _ := succeeds(t, "compare", "--fabric", fabric, "--tests", "rate:64", "--mode", "gather", "--rounds", "1", "--time", "5ms", "--format", "json")
		rows := jsonLines[compare.Row](t, out)
		require.Len(t, rows, 1)
		r := rows[0]
		require.Equal(t, "ucx", r.Peer)
		require.Equal(t, fabric, r.Fabric)
		require.Equal(t, compare.Rate, r.Test)
		require.Equal(t, "gather", r.Mode)
		if r.Rounds == 1 { // on a busy machine the peer may not end in its time
			require.True(t, r.Ours > 0 && r.Theirs > 0 && r.Ratio > 0, "%+v", r)
		} else {
			require.NotEmpty(t, r.Why)
		}
	}
}

// Puts go through the engine.
func TestComparePuts(t *testing.T) {
	if _, err := exec.LookPath("ucx_perftest"); err != nil {
		t.Skip("ucx_perftest is not installed (ucx-utils)")
	}
	for _, fabric := range fabrics {
		out, _ := succeeds(t, "compare", "--fabric", fabric, "--tests", "put:8,putbw:64K", "--rounds", "1", "--time", "5ms", "--limit", "5s", "--format", "json")
		rows := jsonLines[compare.Row](t, out)
		require.Len(t, rows, 2)
		for i, kind := range []compare.Kind{compare.Put, compare.PutBW} {
			require.Equal(t, kind, rows[i].Test)
			if rows[i].Rounds == 1 {
				require.True(t, rows[i].Ours > 0 && rows[i].Theirs > 0, "%+v", rows[i])
			}
		}
	}
}

// Without --limit a peer's run has time in proportion to what is measured.
func TestCompareLimitsByTime(t *testing.T) {
	t.Parallel()
	for args, limit := range map[string]time.Duration{"": compare.LeastLimit, "--time 1m": 20 * time.Minute, "--time 1m --limit 2m": 2 * time.Minute} {
		f, fl := &compareFlags{}, pflag.NewFlagSet("compare", pflag.ContinueOnError)
		f.flags(fl)
		require.NoError(t, fl.Parse(strings.Fields(args)))
		req, err := f.request()
		require.NoError(t, err)
		require.Equal(t, limit, req.Limit, args)
	}
}

func TestBesideUsageErrors(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"rendezvous --fabric pigeon": "want auto", "rendezvous --sizes 0": "zero", "rendezvous --rounds 0": "positive", "rendezvous --mode rocket": "want auto",
		"rendezvous --format csv": "want table", "rendezvous 8": "unexpected argument", "rendezvous --window -1": "positive",
		"switch --fabric pigeon": "want auto", "switch -n 0": "want 1 to", "switch --batches=": "invalid argument", "switch -n 1000": "want 1 to", "switch --rounds 0": "positive", "switch --max 4": "want 8", "switch --max 8,16": "one size", "switch --max x": "not a size", "switch --format xml": "want table",
		"overlap --fabric pigeon": "want auto", "overlap --op swap": "want [message put get]", "overlap --who nobody": "want [sender", "overlap --sizes 0": "zero", "overlap --ratios 0": "ratio", "overlap --rounds 0": "rounds", "overlap --format csv": "want table", "overlap --peers lam --fabric shm": "want some of openmpi", "overlap --peers openmpi": "want shm or tcp",
		"reactivity --op put": "want [get", "reactivity --goroutines -1": "goroutines", "reactivity --gap -1ms": "gap -1ms", "reactivity --gap 2s": "0 to 1s", "reactivity --gap 1ms --fabric shm --peers openmpi": "not with --peers", "threads --gap 1ms": "unknown flag", "threads --beside sleeps": "want [signals", "threads --time 0s": "rounds of 0s", "threads 8": "unexpected argument", "threads --peers openmpi": "want shm or tcp",
		"concurrent --beside swaps": "want [messages", "concurrent --sizes 0": "zero", "concurrent --streams 1024 --sizes 2M": "1 GiB", "concurrent --peers lam --fabric shm": "want some of openmpi",
		"load --op swap": "want [put-signal", "load --busy -1": "goroutines", "load --spin 0": "want default", "load --spin fast": "want default",
		"compare --fabric auto": "want shm", "compare --peers mpi": "unknown peer", "compare --through air": "want engine or channel", "compare --tests speed:8": "bad test", "compare --tests rate:0": "zero",
		"compare --rounds 0": "positive", "compare --limit -1s": "want 0 or", "compare --batch 8 --through channel": "requires --through engine", "compare --rounds 1001": "want 1 to 1000", "compare --time 1us": "range 1ms to 1h", "compare --mode rocket": "want auto", "compare --format csv": "want table", "compare --window 100000": "out of range",
	} {
		refused(t, says, strings.Fields(args)...)
	}
}

// The commands overlap, reactivity, threads, concurrent and load write a line for each point, over tcp as JSON, and over shm as a table.
func TestBusyRanksOverRealProcesses(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"overlap --sizes 64K --who both --ratios 1 --op message,get", "reactivity --op get,handler --goroutines 0 --gap 1ms", "threads --beside signals --goroutines 2", "concurrent --beside puts --sizes 64K --streams 1", "load --op get --busy 1 --spin default,-1"} {
		words := append(strings.Fields(args), "--rounds", "1", "--time", "1ms")
		out, _ := succeeds(t, append(words, "--fabric", "tcp", "--format", "json")...)
		rs := jsonLines[overlap.Result](t, out)
		require.Len(t, rs, 2)
		require.Equal(t, "tcp", rs[0].Fabric)
		file := filepath.Join(t.TempDir(), "table")
		out, _ = succeeds(t, append(words, "--fabric", "shm", "--out", file)...)
		require.Empty(t, out)
		table, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, 3, bytes.Count(table, []byte("\n")), "%s", table)
		require.Contains(t, string(table), "shm")
	}
}

// With --peers every library is measured in each round, and named.
func TestOverlapOfPeers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts other libraries' programs")
	}
	for _, args := range []string{"overlap --sizes 64K --who both --ratios 1", "reactivity --op get --goroutines 0"} {
		code, out, errs := rmabench(t, append(strings.Fields(args), "--fabric", "shm", "--rounds", "2", "--time", "1ms", "--peers", "openmpi", "--format", "json")...)
		if code == exitMissing {
			t.Skip(errs)
		}
		require.Equal(t, exitOK, code, errs)
		var names []string
		for _, r := range jsonLines[overlap.Result](t, out) {
			names = append(names, strconv.Itoa(r.Round)+r.Library)
		}
		require.Equal(t, []string{"0", "0openmpi", "1", "1openmpi"}, names)
	}
}

func TestSwitchOverRealProcesses(t *testing.T) {
	for _, fabric := range fabrics {
		page := filepath.Join(t.TempDir(), "switch.html")
		out, _ := succeeds(t, "switch", "--fabric", fabric, "-n", "1,16", "--max", "32K", "--rounds", "3", "--time", "1ms", "--sampling", "50ms", "--calibration", "100ms", "--format", "json", "--html", page)
		cs, err := choice.ReadCurves(strings.NewReader(out))
		require.NoError(t, err)
		require.Len(t, cs, 2)
		for i, n := range []int{1, 16} {
			c := cs[i]
			require.Equal(t, fabric, c.Fabric)
			require.Equal(t, n, c.N)
			require.Equal(t, 3, c.Rounds)
			require.True(t, slices.IsSortedFunc(c.Points, func(a, b choice.Point) int { return a.Size - b.Size }))
			has := func(size int) bool {
				return slices.ContainsFunc(c.Points, func(p choice.Point) bool { return p.Size == size && p.US > 0 && p.MBs > 0 && p.Plan != "" })
			}
			require.True(t, has(8) && has(32<<10))
			for _, s := range c.Steps {
				for d := -3; d <= 3; d++ {
					require.True(t, s.Size+d < 1 || s.Size+d > 32<<10 || has(s.Size+d), "%d around %d", d, s.Size)
				}
				require.Positive(t, s.Below)
				require.Positive(t, s.Above)
			}
		}
		html, err := os.ReadFile(page)
		require.NoError(t, err)
		require.Contains(t, string(html), "<svg")
	}
}

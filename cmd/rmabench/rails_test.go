package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bench"
)

func TestRailsCommand(t *testing.T) {
	for _, bad := range []string{"", "--fabric shm --links a,b --peer-links c,d", "--links a,b --peer-links c,d", "--links 10.0.0.1,10.0.1.1 --peer-links 10.0.0.2",
		"--links 10.0.0.1,10.0.1.1 --peer-links 10.0.0.2,10.0.1.2 --format csv", "--links 10.0.0.1,10.0.1.1 --peer-links 10.0.0.2,10.0.1.2 --sizes 0"} {
		code, _, errs := rmabench(t, append([]string{"rails"}, strings.Fields(bad)...)...)
		require.Equal(t, exitUsage, code, "%q: %s", bad, errs)
	}
	refused(t, `fabric "pigeon", want tcp or verbs`, "rails", "--fabric", "pigeon")
	if runtime.GOOS != "linux" {
		t.Skip("other systems have one loopback address")
	}
	args := []string{"rails", "--links", "127.0.0.1,127.0.0.2", "--peer-links", "127.0.0.3,127.0.0.4", "--sizes", "64K", "--rounds", "1", "--time", "1ms", "--rates", "1:1"}
	code, out, errs := rmabench(t, append(args, "--format", "json")...)
	require.Equal(t, exitOK, code, errs)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, len(bench.RailsOps))
	for i, l := range lines {
		var r bench.RailsResult
		require.NoError(t, json.Unmarshal([]byte(l), &r))
		require.Equal(t, []any{bench.RailsOps[i], 64 << 10, "1:1"}, []any{r.Op, r.Size, r.Rates})
		require.Positive(t, r.OfSum)
	}
	// An interrupt, and a failure before the first result, leave the old file.
	file := filepath.Join(t.TempDir(), "old.jsonl")
	require.NoError(t, os.WriteFile(file, []byte("old"), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	r := &cancelAfter{cancel: cancel}
	code = run(ctx, append(args, "--sizes", "4K,8K", "--out", file), streams{strings.NewReader(""), r, r})
	require.Equal(t, exitInterrupted, code)
	code, _, errs = rmabench(t, "rails", "--links", "127.0.0.1,192.0.2.1", "--peer-links", "127.0.0.3,192.0.2.2", "--out", file)
	require.Equal(t, exitFailed, code, errs)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "old", string(b))
	code, out, errs = rmabench(t, append(args, "--ops", "get")...)
	require.Equal(t, exitOK, code, errs)
	require.Contains(t, out, "of the sum")
}

func TestExplainRails(t *testing.T) {
	out, _ := succeeds(t, "explain", "--rails", "20us:4,15us:28", "--size", "1M", "--format", "json")
	var c bench.RailsCut
	require.NoError(t, json.Unmarshal([]byte(out), &c))
	require.True(t, c.Divided)
	out, _ = succeeds(t, "explain", "--rails", "20us:4,15us:28", "--size", "4K")
	require.Contains(t, out, "whole over rail 1")
}

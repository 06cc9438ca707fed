package compare

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestParseGo(t *testing.T) {
	t.Parallel()
	const line = `{"peer":"net","how":"one write","net":"unix","test":"rate","size":8,"iters":9,"seconds":1,"mb_s":4,"mmsg_s":0.5}`
	x, err := parseGo([]byte("listening\n"+line+"\n"), Job{Test: Test{Rate, 8}})
	require.NoError(t, err)
	require.Equal(t, 0.5, x)
	x, err = parseGo([]byte(`{"test":"bw","size":8,"mb_s":4}`), Job{Test: Test{BW, 8}})
	require.NoError(t, err)
	require.Equal(t, 4.0, x)
	x, err = parseGo([]byte(`{"test":"lat","size":8,"p50_us":9.5}`), Job{Test: Test{Lat, 8}})
	require.NoError(t, err)
	require.Equal(t, 9.5, x)
	for _, bad := range []string{"", "net: no route", line, `{"test":"lat","size":8}`, `{"test":"lat","size":8,"p50_us":-1}`, `{"test":"lat","size":9,"p50_us":1}`} {
		_, err = parseGo([]byte(bad), Job{Test: Test{Lat, 8}})
		require.ErrorIs(t, err, ErrOutput, bad)
	}
}

// What is in the way of a Go program depends on where this one is.
func TestGoProgramsThatAreMissing(t *testing.T) {
	p := goPeer("nothing", "", []string{"shm"})
	t.Setenv("PATH", t.TempDir())
	err := p.Missing("shm")
	require.ErrorIs(t, err, ErrMissing)
	require.ErrorIs(t, err, ErrTool, "this is the source tree")
	var m *MissingError
	require.ErrorAs(t, err, &m)
	require.ErrorIs(t, m.InstallGo(t.Context(), "latest"), ErrTool)

	t.Chdir(t.TempDir())
	err = p.Missing("shm")
	require.ErrorIs(t, err, ErrMissing)
	require.NotErrorIs(t, err, ErrTool)
	require.ErrorContains(t, err, "go install "+goModule+"/cmd/rmapeer-nothing@latest")
	require.Equal(t, "rmapeer-nothing", built(t.TempDir(), "rmapeer-nothing"))

	bin := t.TempDir()
	t.Setenv("PATH", bin)
	require.NoError(t, os.WriteFile(filepath.Join(bin, "rmapeer-nothing"), []byte("#!/bin/sh\n"), 0o755))
	require.NoError(t, p.Missing("shm"))
}

func TestGoPlan(t *testing.T) {
	t.Parallel()
	j := Job{Fabric: "shm", Place: Place{Addr: "127.0.0.1", Cores: []int{4, 6}}, Test: Test{Rate, 4096}, Iters: 7, Port: 99}
	plan, err := netBatch.Plan(j)
	require.NoError(t, err)
	require.True(t, plan.PinsItself)
	require.Equal(t, []string{"rmapeer-net", "serve", "--addr", "127.0.0.1", "--port", "99", "--cpu", "6"}, plan.Server)
	require.Equal(t, []string{"rmapeer-net", "run", "--addr", "127.0.0.1", "--port", "99", "--cpu", "4", "--net", "unix",
		"--test", "rate", "--size", "4096", "--iters", "7", "--batch", "32"}, plan.Client)
	j.Cores, j.Fabric = nil, "tcp"
	plan, err = grpcPeer.Plan(j)
	require.NoError(t, err)
	require.NotContains(t, plan.Client, "--cpu")
	require.Contains(t, plan.Client, "tcp")
}

// The program of package net, built and run as it is by a comparison.
func TestGoPeerRuns(t *testing.T) {
	t.Parallel()
	needProc(t)
	if _, err := exec.LookPath(goTool); err != nil {
		t.Skip("no Go toolchain")
	}
	for _, fabric := range []string{"shm", "tcp"} {
		var rows []Row
		err := Run(testutil.Context(t, 120*time.Second), Request{
			Fabric: fabric, Peers: []*Peer{netPeer}, Tests: []Test{{Rate, 64}, {Lat, 8}, {BW, 1 << 20}}, Rounds: 1, Time: 5 * time.Millisecond,
		}, func(_ context.Context, test Test) (bench.Result, error) {
			return bench.Result{Mmsgs: 4, MBs: 4, LatUS: bench.Latency{P50: 1}}, nil
		}, func(r Row) error { rows = append(rows, r); return nil })
		require.NoError(t, err)
		require.Len(t, rows, 3)
		for _, r := range rows {
			require.Equal(t, 1, r.Rounds, r.Why)
			require.Positive(t, r.Theirs)
			require.Contains(t, r.Version, "net (go1")
		}
	}
}

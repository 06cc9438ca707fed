package compare

import (
	"bytes"
	"context"
	"io"
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

// The reason why a Go program is missing depends on where this program is.
func TestGoProgramsThatAreMissing(t *testing.T) {
	p := goPeer("nothing", "", []string{"shm"})
	t.Setenv("PATH", t.TempDir())
	err := p.Missing("shm")
	require.ErrorIs(t, err, ErrMissing)
	require.ErrorIs(t, err, ErrTool, "this is the source tree")
	err = Install(t.Context(), "shm", []*Peer{p}, io.Discard)
	require.ErrorIs(t, err, ErrInstall)
	require.ErrorIs(t, err, ErrTool)

	t.Chdir(t.TempDir())
	err = p.Missing("shm")
	require.ErrorIs(t, err, ErrMissing)
	require.NotErrorIs(t, err, ErrTool)
	require.ErrorContains(t, err, "go install "+goModule+"/cmd/rmapeer-nothing@latest")
	require.Equal(t, "rmapeer-nothing", built(t.TempDir(), "rmapeer-nothing"))

	err = Install(t.Context(), "shm", []*Peer{p}, io.Discard)
	require.ErrorIs(t, err, ErrInstall)
	require.ErrorIs(t, err, ErrTool)

	// A fake go command that installs its argument and reports it.
	bin, gobin := t.TempDir(), t.TempDir()
	t.Setenv("PATH", bin+":/bin:/usr/bin")
	script := "#!/bin/sh\ncase $1 in\nenv) echo " + gobin + "; echo /nowhere;;\ninstall) echo '#!/bin/sh' >" + gobin + "/${2##*/}; cd " + gobin +
		" && mv ${2##*/} rmapeer-nothing && chmod +x rmapeer-nothing;;\nesac\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, goTool), []byte(script), 0o755))
	require.ErrorIs(t, p.Missing("shm"), ErrMissing)
	var said bytes.Buffer
	require.NoError(t, Install(t.Context(), "shm", []*Peer{p, p}, &said))
	require.Equal(t, "go install "+goModule+"/cmd/rmapeer-nothing@latest\n", said.String())
	require.NoError(t, p.Missing("shm"))
	dir := t.TempDir()
	require.NoError(t, p.Prepare(t.Context(), dir))
	require.Equal(t, filepath.Join(dir, "rmapeer-nothing"), built(dir, "rmapeer-nothing"))

	t.Setenv("PATH", gobin)
	require.NoError(t, p.Missing("shm"), "in PATH")
}

func TestGoPlan(t *testing.T) {
	t.Parallel()
	j := Job{Fabric: "shm", Place: Place{Addr: "127.0.0.1", Cores: []int{4, 6}}, Test: Test{Rate, 4096}, Iters: 7, Port: 99, Limit: 10 * time.Minute}
	plan, err := netBatch.Plan(j)
	require.NoError(t, err)
	require.True(t, plan.PinsItself)
	require.Equal(t, []string{"rmapeer-net", "serve", "--addr", "127.0.0.1", "--port", "99", "--limit", "10m0s", "--cpu", "6"}, plan.Server)
	require.Equal(t, []string{"rmapeer-net", "run", "--addr", "127.0.0.1", "--port", "99", "--limit", "10m0s", "--cpu", "4", "--net", "unix",
		"--test", "rate", "--size", "4096", "--iters", "7", "--batch", "32"}, plan.Client)
	j.Cores, j.Fabric = nil, "tcp"
	plan, err = grpcPeer.Plan(j)
	require.NoError(t, err)
	require.NotContains(t, plan.Client, "--cpu")
	require.Contains(t, plan.Client, "tcp")
}

// The program of package net, built and run as in a comparison.
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

//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/launch"
	"github.com/seed33544411/rma/internal/testutil"
)

// The test binary is also the program that the ranks of its jobs run.
const roleEnv = "RMA_TEST_START_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) == "" {
		testutil.Main(m)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// job runs n processes of a program and returns their output.
func job(t *testing.T, n int, path string, env ...string) string {
	t.Helper()
	var out bytes.Buffer
	_, err := launch.Run(testutil.Context(t, 90*time.Second), launch.Spec{
		N: n, Path: path, Env: append(env, "RMA_PROFILES="+t.TempDir()), Stdout: &out, Stderr: &out, Grace: 2 * time.Second,
	})
	require.NoError(t, err, out.String())
	return out.String()
}

func TestStart(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	for _, c := range []struct {
		n      int
		fabric string
	}{{1, ""}, {2, "shm"}, {3, "tcp"}} {
		t.Run(fmt.Sprintf("%d %s", c.n, c.fabric), func(t *testing.T) {
			t.Parallel()
			out := job(t, c.n, exe, roleEnv+"=start", "RMA_FABRIC="+c.fabric)
			var tickets []string
			for _, m := range regexp.MustCompile(`has ticket (\d+)`).FindAllStringSubmatch(out, -1) {
				tickets = append(tickets, m[1])
			}
			var want []string
			sum := 0
			for i := range 3 * c.n {
				want = append(want, fmt.Sprint(i))
			}
			for r := range c.n {
				sum += 100 + r
			}
			require.ElementsMatch(t, want, tickets, "each ticket once")
			for r := range c.n {
				require.Contains(t, out, fmt.Sprintf("rank %d read a sum of %d\n", r, sum))
				require.Contains(t, out, fmt.Sprintf("rank %d got message 2 of 1048576 bytes\n", r))
			}
		})
	}
}

// What an operator writes into a file reaches the ranks; a variable wins over it.
func TestSettingsFile(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "rma.conf")
	require.NoError(t, os.WriteFile(file, []byte("fabric = tcp # for a test\nlog = debug\nsampling = off\n"), 0o600))
	out := job(t, 2, exe, roleEnv+"=start", "RMA_CONFIG="+file)
	require.Contains(t, out, `msg="rma: setting" name=fabric value=tcp origin=file at=`+file+":1")
	require.Contains(t, out, `msg="rma: link chosen" rank=1 link=tcp`)
	out = job(t, 2, exe, roleEnv+"=start", "RMA_CONFIG="+file, "RMA_FABRIC=shm")
	require.Contains(t, out, `msg="rma: link chosen" rank=1 link=shm`)
}

func TestSurvive(t *testing.T) {
	err := survive(&rma.PeerError{Rank: 3, Op: "put", Err: rma.ErrPeerGone})
	require.ErrorContains(t, err, "rank 3 died")
	require.ErrorIs(t, err, rma.ErrPeerGone)
	require.ErrorContains(t, survive(context.Canceled), "interrupted")
	other := errors.New("other")
	require.Equal(t, other, survive(other))
}

// The page's first program is what a newcomer gets who does what the page says:
// a module of its own, built and run by two ranks.
func TestGettingStartedFromScratch(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs/getting-started.md"))
	require.NoError(t, err)
	m := regexp.MustCompile("(?ms)^```go\n(package main\n.*?)^```").FindSubmatch(page)
	require.NotNil(t, m, "no program in the page")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), m[1], 0o644))
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o644))
	goTool := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(testutil.Context(t, 5*time.Minute), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod -buildvcs=false", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "go %s: %s", strings.Join(args, " "), out)
	}
	goTool("mod", "init", "example.com/hello")
	goTool("mod", "edit", "-go=1.26", "-require=github.com/seed33544411/rma@v0.0.0", "-replace=github.com/seed33544411/rma="+root)
	goTool("build", "-o", "hello", ".")
	out := job(t, 2, filepath.Join(dir, "hello"), "RMA_FABRIC=shm")
	require.Contains(t, out, `rank 0 got "hello from rank 1 of 2" over shm`)
	require.Contains(t, out, `rank 1 got "hello from rank 0 of 2" over shm`)
}

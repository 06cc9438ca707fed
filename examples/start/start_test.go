//go:build unix

package main

import (
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
	"github.com/seed33544411/rma/internal/launch/launchtest"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { launchtest.Main(m, map[string]launchtest.Role{"start": run}) }

func TestStart(t *testing.T) {
	for _, c := range []struct {
		n      int
		fabric string
	}{{1, ""}, {2, "shm"}, {3, "tcp"}} {
		t.Run(fmt.Sprintf("%d %s", c.n, c.fabric), func(t *testing.T) {
			t.Parallel()
			out := launchtest.Job{N: c.n, Role: "start", Fabric: c.fabric}.Output(t)
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
	file := filepath.Join(t.TempDir(), "rma.conf")
	require.NoError(t, os.WriteFile(file, []byte("fabric = tcp # for a test\nlog = debug\nsampling = off\n"), 0o600))
	job := launchtest.Job{N: 2, Role: "start", Env: []string{"RMA_CONFIG=" + file}}
	out := job.Output(t)
	require.Contains(t, out, `msg="rma: setting" name=fabric value=tcp origin=file at=`+file+":1")
	require.Contains(t, out, `msg="rma: link chosen" rank=1 link=tcp`)
	job.Fabric = "shm"
	out = job.Output(t)
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
	out := launchtest.Job{N: 2, Path: filepath.Join(dir, "hello"), Fabric: "shm"}.Output(t)
	require.Contains(t, out, `rank 0 got "hello from rank 1 of 2" over shm`)
	require.Contains(t, out, `rank 1 got "hello from rank 0 of 2" over shm`)
}

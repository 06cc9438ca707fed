//go:build unix

package launch

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup"
)

// A launcher may be killed after it has started a rank and before it has reported the rank
// to the guard.
func TestGuardFindsRanksItWasNotToldOf(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("no /proc: the guard knows only the groups added to it")
	}
	const job = "guard-test-17"
	rank := func(job string) (*exec.Cmd, chan error) {
		cmd := exec.Command("sleep", "300")
		cmd.Env = []string{wireup.EnvJob + "=" + job, "PATH=" + os.Getenv("PATH")}
		require.NoError(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		return cmd, ended
	}
	mine, mineEnded := rank(job)
	other, otherEnded := rank(job + "0")
	t.Cleanup(func() { _ = other.Process.Kill() })

	g := startGuard("")
	g.starting(job)
	g.close()
	ctx := testutil.Context(t, 30*time.Second)
	select {
	case err := <-mineEnded:
		require.Error(t, err)
	case <-ctx.Done():
		_ = mine.Process.Kill()
		t.Fatal("the rank lives on")
	}

	// All groups are reported: the job's name has no effect any more.
	g = startGuard("")
	g.starting(job + "0")
	g.started()
	g.close()
	_ = other.Process.Signal(syscall.SIGTERM)
	require.ErrorContains(t, <-otherEnded, "terminated", "a process of no concern was killed")
}

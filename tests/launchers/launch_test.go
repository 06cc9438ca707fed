//go:build linux

package launchers

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
)

// need skips the test, or fails it, where a program is missing.
func need(t *testing.T, programs ...string) {
	if os.Getenv("RMA_LAUNCHERS") != "1" {
		t.Skip("RMA_LAUNCHERS=1 is not set: make launchers does it")
	}
	t.Parallel()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			if _, err := os.Stat("/usr/sbin/" + p); err == nil {
				continue
			}
			if os.Getenv("RMA_REQUIRE_LAUNCHERS") == "1" {
				t.Fatalf("RMA_REQUIRE_LAUNCHERS=1 and %v", err)
			}
			t.Skipf("%v: see tests/packages missing launchers", err)
		}
	}
}

// launcher is a way to start n ranks of a program.
type launcher struct {
	argv []string // before the program
	env  []string
}

// run starts the command with the role and returns what all ranks printed. None
// of its processes outlives the call.
func (l launcher) run(t *testing.T, role string, program ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Limit)
	defer cancel()
	if len(program) == 0 {
		exe, err := os.Executable()
		require.NoError(t, err)
		program = []string{exe}
	}
	argv := append(append([]string{}, l.argv...), program...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(append(os.Environ(), l.env...), roleEnv+"="+role, "RMA_SAMPLING=off")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return string(out), err
}

// checkRing runs a ring of n ranks.
func (l launcher) checkRing(t *testing.T, n int, under, link string) {
	t.Helper()
	out, err := l.run(t, "ring")
	require.NoError(t, err, "%v: %s", l.argv, out)
	for r := range n {
		require.Regexp(t, fmt.Sprintf(`(?m)ring: rank %d of %d, local \d, under %s over %s$`, r, n, under, link), out)
	}
	require.Len(t, regexp.MustCompile(`(?m)ring: rank`).FindAllString(out, -1), n)
}

// checkBound runs a job whose n ranks the launcher binds to one core each.
func (l launcher) checkBound(t *testing.T, n int, under string) {
	t.Helper()
	out, err := l.run(t, "bound")
	require.NoError(t, err, out)
	for r := range n {
		require.Contains(t, out, fmt.Sprintf("bound: rank %d under %s, 1 core(s)\n", r, under))
	}
}

// checkErrors runs jobs of three ranks that cannot come about.
func (l launcher) checkErrors(t *testing.T) {
	t.Helper()
	out, err := l.run(t, "token")
	require.NoError(t, err, out)
	require.Contains(t, out, "token: rank 2: rma: open: wireup: rank 2 of 3: join")
	require.Contains(t, out, "wrong job token")
	require.Regexp(t, `token: rank [01]: .*rank 2 of 3 has not joined`, out)
}

// checkAbsent runs a job of three ranks of which one does not come.
func (l launcher) checkAbsent(t *testing.T) {
	t.Helper()
	out, err := l.run(t, "absent")
	require.NoError(t, err, out)
	require.Regexp(t, `absent: rank [01]: .*rank 2 of 3 has not joined`, out)
	require.Contains(t, out, "absent: rank 0:")
	require.Contains(t, out, "absent: rank 1:")
}

// hello builds examples/hello, once.
var hello = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rma-hello")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "hello")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "github.com/seed33544411/rma/examples/hello").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// checkHello runs the example.
func (l launcher) checkHello(t *testing.T, n int) {
	t.Helper()
	path, err := hello()
	require.NoError(t, err)
	out, err := l.run(t, "", path)
	require.NoError(t, err, out)
	for r := range n {
		require.Contains(t, out, fmt.Sprintf("rank %d got \"hello from rank %d of %d\" over shm", r, (r+n-1)%n, n))
	}
}

func TestOpenMPI(t *testing.T) {
	need(t, "mpirun.openmpi")
	agent := filepath.Join(t.TempDir(), "agent")
	tmp := shortDir(t)
	// Daemons of two hosts that are one need temporary directories of their own:
	// they would make and remove each other's, and now and then hang.
	ssh := "#!/bin/sh\n# ssh that stays here\nexport TMPDIR=" + tmp + "/$1\nmkdir -p \"$TMPDIR\"\nshift\nexec sh -c \"$*\"\n"
	require.NoError(t, os.WriteFile(agent, []byte(ssh), 0o755))
	env := []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "TMPDIR=" + tmp}
	on := func(n int, more ...string) launcher {
		argv := []string{"mpirun.openmpi", "--oversubscribe", "-n", strconv.Itoa(n), "-x", roleEnv, "-x", "RMA_SAMPLING"}
		return launcher{argv: append(argv, more...), env: env}
	}
	hosts := []string{"--mca", "plm_rsh_agent", agent, "--mca", "plm_rsh_no_tree_spawn", "1", "-H", "h1:2,h2:2"}
	on(4).checkRing(t, 4, "openmpi", "shm")
	on(4, "-x", "RMA_FABRIC=tcp").checkRing(t, 4, "openmpi", "tcp")
	on(4, hosts...).checkRing(t, 4, "openmpi", "shm")
	on(2, "--bind-to", "core:overload-allowed").checkBound(t, 2, "openmpi")
	on(3).checkHello(t, 3)
	on(3).checkErrors(t)
}

func TestMPICH(t *testing.T) {
	need(t, "mpirun.mpich")
	on := func(n int, more ...string) launcher {
		return launcher{argv: append([]string{"mpirun.mpich", "-n", strconv.Itoa(n)}, more...)}
	}
	on(4).checkRing(t, 4, "mpich", "shm")
	on(4, "-env", "RMA_FABRIC", "tcp").checkRing(t, 4, "mpich", "tcp")
	on(4, "-launcher", "fork", "-hosts", "localhost,127.0.0.1").checkRing(t, 4, "mpich", "shm")
	on(2, "-bind-to", "core").checkBound(t, 2, "mpich")
	on(3).checkHello(t, 3)
	on(3).checkErrors(t)
}

func TestSlurm(t *testing.T) {
	need(t, "srun", "slurmctld", "slurmd", "munged")
	env := cluster(t)
	on := func(n int, more ...string) launcher {
		return launcher{argv: append([]string{"srun", "--immediate=20", "-n", strconv.Itoa(n)}, more...), env: env}
	}
	on(4, "-N", "1").checkRing(t, 4, "slurm", "shm")
	on(4, "-N", "1", "--export=ALL,RMA_FABRIC=tcp").checkRing(t, 4, "slurm", "tcp")
	on(4, "-N", "1", "--mpi=pmi2").checkRing(t, 4, "mpich", "shm")
	on(4, "-N", "2", "--mpi=pmi2").checkRing(t, 4, "mpich", "shm")
	on(2, "-N", "1", "--cpu-bind=map_cpu:"+twoCPUs()).checkBound(t, 2, "slurm")
	on(3, "-N", "1").checkHello(t, 3)
	on(3, "-N", "1").checkErrors(t)
	on(3, "-N", "1").checkAbsent(t)

	// Nodes that no name service knows: a place to meet, and a secret, are given.
	two := on(4, "-N", "2")
	out, err := two.run(t, "ring")
	require.Error(t, err)
	require.Contains(t, out, "the job needs a secret of at least 16 bytes")
	require.Contains(t, out, "export RMA_TOKEN=$(openssl rand -hex 32) before srun")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	two.env = append(two.env, "RMA_TOKEN="+strings.Repeat("5a", 16), "RMA_ROOT="+ln.Addr().String())
	two.checkRing(t, 4, "slurm", "shm")

	// In a batch script a program is alone; its srun is not.
	exe, err := os.Executable()
	require.NoError(t, err)
	dir := shortDir(t)
	script := filepath.Join(dir, "batch")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\n"+exe+"\nsrun --overlap "+exe+"\necho ended $?\n"), 0o755))
	out, err = launcher{argv: []string{"sbatch", "-N", "1", "-n", "3", "-o", dir + "/out"}, env: env}.run(t, "ring", script)
	require.NoError(t, err, out)
	var text []byte
	testutil.Eventually(t, 30*time.Second, func() bool {
		text, err = os.ReadFile(dir + "/out")
		return err == nil && strings.Contains(string(text), "ended ")
	}, "end of the batch script")
	queue := launcher{argv: []string{"squeue", "--noheader"}, env: env}
	testutil.Eventually(t, 30*time.Second, func() bool { // Slurm has noticed, too
		out, err := queue.run(t, "", "--all")
		return err == nil && out == ""
	}, "an empty queue")
	require.Contains(t, string(text), "ring: rank 0 of 1, local 0, under none over")
	require.Contains(t, string(text), "ended 0\n")
	require.Contains(t, string(text), "ring: rank 2 of 3, local 2, under slurm over shm")
}

// twoCPUs lists the first and the last processor of this process, in the format of srun: the
// nodes of the test's cluster have more cores than the host may have, so that srun cannot be
// left to find them.
func twoCPUs() string {
	cpus := cpu.Allowed().CPUs()
	return fmt.Sprintf("%d,%d", cpus[0], cpus[len(cpus)-1])
}

// shortDir is a temporary directory whose path leaves room for socket names.
func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "rl")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

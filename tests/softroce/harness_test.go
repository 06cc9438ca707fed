//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/internal/testutil"
)

// Tests of the harness's own promises on real machines: make softroce-selftest.
// RMA_SOFTROCE_SELFTEST names the kind of machine.

// selftest builds the tool and returns a function that makes commands with a view of the
// cache of its own: the kernels are the user's, the run directories are not. Machines wait more
// than they compute, and those of several tests run side by side; devices of the host do not.
func selftest(t *testing.T) (vm, runs string, command func(args ...string) *exec.Cmd) {
	t.Helper()
	vm = os.Getenv("RMA_SOFTROCE_SELFTEST")
	if vm == "" {
		t.Skip("starts machines: run make softroce-selftest")
	}
	if vm == "auto" {
		vm = "qemu"
		if nativePossible() == nil {
			vm = "native"
		}
	}
	if vm != "native" {
		t.Parallel()
	}
	bin := filepath.Join(t.TempDir(), "softroce")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	if vm != "native" {
		out, err = exec.Command(bin, "build", "-vm", vm).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	c, err := openCache()
	require.NoError(t, err)
	own := t.TempDir()
	for _, kind := range []string{"qemu-*", "uml-*"} {
		found, _ := filepath.Glob(filepath.Join(c.dir, kind))
		for _, f := range found {
			require.NoError(t, os.Symlink(f, filepath.Join(own, filepath.Base(f))))
		}
	}
	return vm, filepath.Join(own, "run"), func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), bin, append([]string{"run", "-vm", vm}, args...)...)
		cmd.Env = append(os.Environ(), "RMA_SOFTROCE_CACHE="+own, "RMA_TEST_SELF=passed on")
		return cmd
	}
}

// nothingLeft checks that there is neither a run directory nor a process of a run.
func nothingLeft(t *testing.T, runs string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(runs, "r*"))
	require.NoError(t, err)
	require.Empty(t, left, "run directories")
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, p := range procs {
		b, _ := os.ReadFile(p)
		require.NotContains(t, string(b), runs+"/", "process %s", p)
	}
}

func run(t *testing.T, cmd *exec.Cmd) (code int, stdout, stderr string) {
	t.Helper()
	var out, errb bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errb
	err := cmd.Run()
	if e := (*exec.ExitError)(nil); err != nil && !errors.As(err, &e) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errb.String()
}

func TestHarnessRunsAProgramAsHere(t *testing.T) {
	vm, runs, command := selftest(t)
	out := t.TempDir()
	cmd := command("-out", out, "-env", "EXTRA=a b", "--", "sh", "-c",
		`pwd; echo "$RMA_TEST_SELF $EXTRA $RMA_SOFTROCE"; echo to stderr >&2; echo kept > "$RMA_SOFTROCE_OUT/f"; ls /sys/class/infiniband; exit 42`)
	code, stdout, stderr := run(t, cmd)
	require.Equal(t, 42, code, "%s", stderr)
	wd, err := os.Getwd()
	require.NoError(t, err)
	lines := strings.Split(stdout, "\n")
	require.GreaterOrEqual(t, len(lines), 3, "%s", stdout)
	require.Equal(t, wd, lines[0])
	require.Equal(t, "passed on a b "+vm, lines[1])
	require.Contains(t, lines[2:], "rxe0")
	require.Contains(t, stderr, "to stderr\n")
	kept, err := os.ReadFile(filepath.Join(out, "f"))
	require.NoError(t, err)
	require.Equal(t, "kept\n", string(kept))
	nothingLeft(t, runs)
}

// The emulated processor's clock runs as fast as the machine's battery-backed one, which
// follows the host's time, even if the host is busy while the kernel boots.
func TestHarnessClock(t *testing.T) {
	vm, _, command := selftest(t)
	if vm != "qemu" {
		t.Skip("no emulated processor")
	}
	busy := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
	require.NoError(t, busy.Start())
	defer func() { _ = busy.Process.Kill(); _ = busy.Wait() }()
	code, stdout, stderr := run(t, command("--", "sh", "-c", `
		both() { date +%s; cat /sys/class/rtc/rtc0/since_epoch; date +%s; }
		both; sleep 10; both`))
	require.Equal(t, 0, code, "%s", stderr)
	var before, battery, after [2]int // the clock before and after the battery-backed one is read
	_, err := fmt.Sscan(stdout, &before[0], &battery[0], &after[0], &before[1], &battery[1], &after[1])
	require.NoError(t, err, "%s", stdout)
	passed := battery[1] - battery[0]
	require.LessOrEqual(t, before[1]-after[0], passed+3, "%s", stdout)
	require.GreaterOrEqual(t, after[1]-before[0], passed-3, "%s", stdout)
}

func TestHarnessStopsWhatDoesNotEnd(t *testing.T) {
	_, runs, command := selftest(t)
	start := time.Now()
	code, _, stderr := run(t, command("-timeout", "8s", "--", "sleep", "1000"))
	require.Equal(t, harnessFailure, code)
	require.Contains(t, stderr, "time-out")
	require.Less(t, time.Since(start), testutil.Limit)
	nothingLeft(t, runs)
}

// waitGuest waits until the program inside has reported that it runs.
func waitGuest(t *testing.T, runs string) {
	t.Helper()
	deadline := time.Now().Add(testutil.Limit)
	for {
		outs, _ := filepath.Glob(filepath.Join(runs, "r*", "*", stdoutFile))
		outs2, _ := filepath.Glob(filepath.Join(runs, "r*", stdoutFile)) // native
		for _, o := range append(outs, outs2...) {
			if b, _ := os.ReadFile(o); bytes.Contains(b, []byte("inside")) {
				return
			}
		}
		require.True(t, time.Now().Before(deadline), "the program did not start")
		time.Sleep(20 * time.Millisecond) // sleep: a machine boots meanwhile
	}
}

func TestHarnessLeavesNothingWhenInterrupted(t *testing.T) {
	vm, runs, command := selftest(t)
	for _, sig := range []os.Signal{unix.SIGINT, unix.SIGKILL} {
		if sig == unix.SIGKILL && vm == "native" {
			continue // no process is left to remove the host's devices
		}
		cmd := command("--", "sh", "-c", "echo inside; sleep 1000")
		require.NoError(t, cmd.Start())
		waitGuest(t, runs)
		require.NoError(t, cmd.Process.Signal(sig))
		_ = cmd.Wait()
		if sig == unix.SIGINT {
			require.Equal(t, 130, cmd.ProcessState.ExitCode())
			nothingLeft(t, runs)
		}
	}
	if vm == "native" {
		return
	}
	// a killed tool cannot clean up; the machine ends all the same and the next command
	// removes the directory
	code, _, stderr := run(t, command("--", "true"))
	require.Zero(t, code, "%s", stderr)
	nothingLeft(t, runs)
}

func TestHarnessTellsItsOwnFailure(t *testing.T) {
	vm, runs, command := selftest(t)
	if vm == "native" {
		t.Skip("a host does not panic for a test")
	}
	code, _, stderr := run(t, command("-mem", "32M", "--", "true")) // too little to boot or to live
	require.Equal(t, harnessFailure, code)
	require.Contains(t, stderr, "softroce: ")
	nothingLeft(t, runs)
	code, _, stderr = run(t, command("--", "no-such-program-at-all"))
	require.Equal(t, 127, code)
	require.Contains(t, stderr, "not found")
}

//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/settings"
	"github.com/seed33544411/rma/internal/testutil"
)

// The test binary is rmarun itself when this is set: every test runs the real
// command in a process of its own.
const selfEnv = "RMARUN_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(selfEnv) != "" {
		os.Unsetenv(selfEnv)
		main()
	}
	if os.Getenv(rankEnv) != "" {
		if err := placedRank(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testutil.UnignoreSignals()
	os.Exit(m.Run())
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Limit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.Env = append(os.Environ(), selfEnv+"=1", "TMPDIR="+t.TempDir())
	cmd.WaitDelay = testutil.Limit
	return cmd
}

func rmarun(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := command(t, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "no program given"},
		{[]string{"-n", "2"}, "no program given"},
		{[]string{"true"}, `required flag(s) "np" not set (see rmarun --help)`},
		{[]string{"-n", "0", "true"}, "at least 1 rank"},
		{[]string{"-n", "two", "true"}, "invalid argument"},
		{[]string{"-n", "2", "--wireup", "x", "true"}, "want unix or tcp"},
		{[]string{"-n", "2", "--rendezvous", "x", "true"}, "want unix or tcp"},
		{[]string{"-n", "2", "--timeout", "-1s", "true"}, "positive"},
		{[]string{"-n", "2", "--hang-timeout", "99ms", "true"}, "at least 100ms"},
		{[]string{"-n", "2", "--bind", "spread", "true"}, `--bind "spread": want none, scatter or compact`},
		{[]string{"-n", "2", "--bind-progress", "true"}, "--bind-progress wants --bind"},
		{[]string{"-n", "70000", "--bind", "scatter", "true"}, "at most 65535 ranks"},
		{[]string{"-n", "2", "--nonsense", "true"}, "unknown flag: --nonsense (see rmarun --help)"},
	} {
		code, out, errs := rmarun(t, c.args...)
		require.Equal(t, 2, code, "%v: %s", c.args, errs)
		require.Contains(t, errs, "rmarun: ")
		require.Contains(t, errs, c.want)
		require.Empty(t, out)
	}
	code, out, _ := rmarun(t, "--help")
	require.Zero(t, code)
	require.Contains(t, out, "rmarun -n 2 ./hello")
	require.Contains(t, out, "124")
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-n", "2", "true"}, 0, ""},
		{[]string{"-n", "2", "sh", "-c", "exit 0", "--flag", "-n"}, 0, ""},
		{[]string{"--grace", "1s", "-np", "2", "sh", "-c", "[ $RMA_SIZE = 2 ] && [ $1 = -np ]", "sh", "-np"}, 0, ""},
		{[]string{"-np=2", "--", "sh", "-c", "[ $RMA_SIZE = 2 ]"}, 0, ""},
		{[]string{"-n", "3", "sh", "-c", "[ $RMA_RANK = 1 ] && exit 9; exec sleep 60"}, 9, "rank 1 .* exited with code 9; stopping 2 other"},
		{[]string{"-n", "1", "sh", "-c", "exit 9"}, 9, "rank 0 .* exited with code 9"},
		{[]string{"-n", "2", "sh", "-c", "[ $RMA_RANK = 1 ] && kill -SEGV $$; exec sleep 60"}, 139, "rank 1 .* was killed by SIGSEGV"},
		{[]string{"-n", "2", "--timeout", "100ms", "sleep", "60"}, 124, "did not end within 100ms"},
		{[]string{"-n", "3", "--hang-timeout", "300ms", "sh", "-c", "[ $RMA_RANK = 1 ] && kill -STOP $$; exec sleep 300"}, 125, `rank 1 \(pid \d+ on .+, state T\) hangs: stopped for \S+; stopping 2 other`},
		{[]string{"-n", "1", "--hang-timeout", "1h0m0.5s", "sh", "-c", "[ $RMA_HANG_TIMEOUT = 1h0m0.5s ]"}, 0, ""},
		{[]string{"-n", "2", "no-such-program-anywhere"}, 127, "not found"},
		{[]string{"-n", "2", "/etc"}, 126, "start rank 0: /etc"},
	} {
		code, out, errs := rmarun(t, c.args...)
		require.Equal(t, c.code, code, "%v: %s", c.args, errs)
		require.Empty(t, out)
		if c.want == "" {
			require.Empty(t, errs)
			continue
		}
		require.Regexp(t, c.want, errs)
		require.Equal(t, 1, strings.Count(errs, "\n"), "one line says it: %s", errs)
	}
}

// Misspelt variables are reported, once and before the ranks start.
func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	cmd := command(t, "-n", "2", "true")
	slip := settings.Prefix + "FABRC"
	cmd.Env = append(cmd.Env, slip+"=tcp", "RMA_FABRIC=tcp")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err)
	require.Equal(t, "rmarun: warning: "+slip+": unknown variable: did you mean RMA_FABRIC?\n", string(out))
}

// withMessages runs rmarun with a file "said" in the directory of the ranks, to which its
// messages go.
func withMessages(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	cmd := command(t, args...)
	cmd.Dir = t.TempDir()
	said, err := os.Create(filepath.Join(cmd.Dir, "said"))
	require.NoError(t, err)
	defer said.Close()
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, said
	require.Error(t, cmd.Run())
	text, err := os.ReadFile(said.Name())
	require.NoError(t, err)
	return cmd.ProcessState.ExitCode(), b.String(), string(text)
}

// A rank that is stopped has failed; the others go on with --keep-going, and it may go on,
// too. Nobody waits for it when they have ended.
func TestHang(t *testing.T) {
	t.Parallel()
	const script = `await() { while ! grep -q "$1" said; do sleep 0.05; done; }
	case $RMA_RANK in
	0) kill -STOP $$; echo on; await "rank 1 .*hangs"; exec sleep 300;;
	1) await "rank 0 .*hangs"; kill -CONT $(sed -n 's/.*rank 0 (pid \([0-9]*\).*/\1/p' said); kill -STOP $$;;
	2) await "rank 1 .*hangs"; kill -STOP $(sed -n 's/.*rank 0 (pid \([0-9]*\).*/\1/p' said);;
	esac`
	code, out, errs := withMessages(t, "-n", "3", "--keep-going", "--hang-timeout", "300ms", "sh", "-c", script)
	require.Equal(t, 125, code, errs)
	require.Equal(t, "on\n", out)
	const hangs = `hangs: stopped for \S+; `
	require.Regexp(t, `^rmarun: rank 0 \(pid \d+ on .+, state T\) `+hangs+`2 other rank\(s\) continue
rmarun: rank 1 \(pid \d+ on .+, state T\) `+hangs+`\d other rank\(s\) continue
rmarun: rank 0 \(pid \d+ on .+, state \S*T\S*\) `+hangs+`\d other rank\(s\) continue
rmarun: ranks \[0 1\] are left, which are stopped: ending them
$`, errs)
}

// With --keep-going the others are left alone, and the exit code is that of the
// first one that failed.
func TestKeepGoing(t *testing.T) {
	t.Parallel()
	const script = `case $RMA_RANK in
	0) while ! grep -q "code 3" said; do sleep 0.05; done; echo done; exit 4;;
	1) exit 3;;
	esac`
	code, out, errs := withMessages(t, "-n", "3", "--keep-going", "sh", "-c", script)
	require.Equal(t, 3, code, errs)
	require.Equal(t, "done\n", out)
	require.Regexp(t, `^rmarun: rank 1 \(pid \d+\) exited with code 3; \d other rank\(s\) continue\nrmarun: rank 0 \(pid \d+\) exited with code 4; \d other rank\(s\) continue\n$`, errs)

	// It ends all the same when it is asked to.
	code, _, text := rmarun(t, "-n", "2", "--keep-going", "--timeout", "500ms", "sh", "-c", "[ $RMA_RANK = 0 ] && exit 3; exec sleep 300")
	require.Equal(t, 124, code, text)
	require.Contains(t, text, "did not end within 500ms")
}

// What ranks print arrives whole and in order, and nothing else is on standard output.
func TestStandardStreams(t *testing.T) {
	t.Parallel()
	const lines = 5000
	cmd := command(t, "-n", "2", "sh", "-c", "cat; [ $RMA_RANK = 1 ] && echo error >&2; exit 0")
	var in strings.Builder
	for i := range lines {
		fmt.Fprintf(&in, "line %d of the input\n", i)
	}
	cmd.Stdin = strings.NewReader(in.String())
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run())
	require.Equal(t, in.String(), out.String())
	require.Equal(t, "error\n", errs.String())

	code, tagged, _ := rmarun(t, "-n", "3", "--tag", "sh", "-c", "printf 'a\nb'")
	require.Zero(t, code)
	for r := range 3 {
		require.Contains(t, tagged, fmt.Sprintf("[%d] a\n", r))
		require.Contains(t, tagged, fmt.Sprintf("[%d] b\n", r))
	}
	require.Equal(t, 6, strings.Count(tagged, "\n"))
}

func started(t *testing.T, script string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	return start(t, command(t, "-n", "2", "sh", "-c", script))
}

func start(t *testing.T, cmd *exec.Cmd) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd, bufio.NewReader(out)
}

func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	s, err := r.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(s)
}

func TestSignalReachesTheRanks(t *testing.T) {
	t.Parallel()
	cmd, out := started(t, `trap 'echo hup' HUP; trap 'echo term; exit 5' TERM; echo up; while :; do sleep 0.05; done`)
	require.Equal(t, "up", line(t, out))
	require.Equal(t, "up", line(t, out))
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	require.Equal(t, "hup", line(t, out))
	require.Equal(t, "hup", line(t, out))
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, "term", line(t, out))
	require.Equal(t, "term", line(t, out))
	require.Error(t, cmd.Wait())
	require.Equal(t, 5, cmd.ProcessState.ExitCode())
}

// A job under nohup survives the hang-up of its terminal.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	t.Parallel()
	cmd := command(t, "-n", "2", "sh", "-c", `trap 'echo usr1; exit 0' USR1; echo up; while :; do sleep 0.05; done`)
	cmd.Args = append([]string{"sh", "-c", `trap '' HUP INT; exec "$0" "$@"`}, cmd.Args...)
	cmd.Path = "/bin/sh"
	cmd, out := start(t, cmd)
	require.Equal(t, "up", line(t, out))
	require.Equal(t, "up", line(t, out))
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGUSR1} {
		require.NoError(t, cmd.Process.Signal(sig))
	}
	require.Equal(t, "usr1", line(t, out))
	require.Equal(t, "usr1", line(t, out))
	require.NoError(t, cmd.Wait())
}

// piped starts cmd with both outputs in one pipe, of which it returns the reader.
func piped(t *testing.T, cmd *exec.Cmd) (out *os.File, in io.Writer) {
	t.Helper()
	out, w, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = w, w
	in, err = cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	w.Close()
	return out, in
}

// Ranks may save their data when nobody reads the output any longer.
func TestClosedOutput(t *testing.T) {
	t.Parallel()
	// The shell itself may write to the closed error output when it gets a signal.
	const saves = `exec 2>/dev/null; trap 'echo saved >"$0.$RMA_RANK"; exit 0' TERM; echo up >"$0.$RMA_RANK"; `
	for name, c := range map[string]struct {
		args   []string
		script string
		code   int
	}{
		"tagged":  {[]string{"--tag"}, saves + `while :; do echo x; sleep 0.05; done`, 1},
		"message": {nil, saves + `[ $RMA_RANK = 0 ] && read x && echo saved >"$0.0" && exit 3; while :; do sleep 0.05; done`, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "rank")
			both := func(text string) {
				for _, rank := range []string{".0", ".1"} {
					testutil.Eventually(t, testutil.Limit, func() bool {
						b, _ := os.ReadFile(file + rank)
						return string(b) == text+"\n"
					}, "rank %s: want %q", rank, text)
				}
			}
			cmd := command(t, append(c.args, "-n", "2", "sh", "-c", c.script, file)...)
			r, in := piped(t, cmd)
			both("up")
			r.Close()
			_, _ = in.Write([]byte("go\n")) // the tagged job may have ended
			require.Error(t, cmd.Wait())
			require.Equal(t, c.code, cmd.ProcessState.ExitCode())
			both("saved")
		})
	}
}

// A loss of output that is noticed when all ranks have ended is an error as well.
func TestClosedOutputAtTheEnd(t *testing.T) {
	t.Parallel()
	cmd := command(t, "--tag", "-n", "1", "sh", "-c", `read x; echo x`)
	r, in := piped(t, cmd)
	r.Close()
	_, err := in.Write([]byte("go\n"))
	require.NoError(t, err)
	require.Error(t, cmd.Wait())
	require.Equal(t, 1, cmd.ProcessState.ExitCode())
}

func gone(t *testing.T, pid string) {
	t.Helper()
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		_, rest, _ := strings.Cut(string(stat), ") ")
		return err != nil || strings.HasPrefix(rest, "Z") // a zombie waits for an init that reaps
	}, testutil.Limit, 10*time.Millisecond, "process %s lives on", pid)
}

func TestKilledRankEndsTheJob(t *testing.T) {
	t.Parallel()
	cmd, out := started(t, `echo $$; exec sleep 300`)
	a, b := line(t, out), line(t, out)
	require.NoError(t, exec.Command("kill", "-KILL", a).Run())
	require.Error(t, cmd.Wait())
	require.Equal(t, 137, cmd.ProcessState.ExitCode())
	gone(t, a)
	gone(t, b)
}

func TestKilledRmarunTakesItsRanksAlong(t *testing.T) {
	t.Parallel()
	cmd, out := started(t, `trap '' TERM HUP; sleep 300 & echo $$; echo $!; wait`)
	var pids []string
	for range 4 {
		pids = append(pids, line(t, out))
	}
	require.NoError(t, cmd.Process.Kill())
	cmd.Wait()
	for _, pid := range pids {
		gone(t, pid)
	}
}

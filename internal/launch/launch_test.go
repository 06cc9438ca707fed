//go:build unix

package launch

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/jobenv"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup"
)

// The test binary is also the program that the tests launch, and a launcher to be killed.
const roleEnv = "RMA_TEST_LAUNCH_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "rank":
		os.Exit(rankMain())
	case "launcher":
		code, err := Run(context.Background(), Spec{N: 2, Path: "/bin/sh", Args: []string{"-c", os.Args[1]}, Stdout: os.Stdout, Stderr: os.Stderr})
		fmt.Println("end", code, err)
		os.Exit(code)
	}
	testutil.UnignoreSignals()
	testutil.Main(m)
}

// rankMain joins the job, exchanges a value and ends as its argument demands.
func rankMain() int {
	c, err := jobenv.FromEnv()
	if err != nil {
		fmt.Println(err)
		return 11
	}
	if os.Args[1] == "absent" && c.Rank == 1 {
		return 0
	}
	j, err := wireup.Join(context.Background(), c)
	if err != nil {
		fmt.Println(err)
		return 12
	}
	defer j.Close()
	vs, err := j.AllGather(context.Background(), "v", fmt.Appendf(nil, "%d/%s", c.LocalRank, os.Getenv(EnvLocalSize)))
	if err != nil {
		fmt.Println(err)
		return 13
	}
	fmt.Printf("rank %d of %d sees %s\n", c.Rank, c.Size, bytes.Join(vs, []byte(",")))
	switch what := os.Args[1]; {
	case what == "abort" && c.Rank == 1:
		j.Abort("disk full")
		return 7
	case what == "abort":
		<-j.Done()
		fmt.Println(j.Err())
	case what == "hang" && c.Rank == 0:
		fmt.Println(j.Hung(1, "no progress for 2s"))
		<-j.Gone(1)
	case what == "hang":
		<-j.Done() // to be ended by the launcher
	case what == "die" && c.Rank == 1:
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case what == "continue" && c.Rank == 1:
		os.Exit(9)
	case what == "continue":
		if err := j.Barrier(context.Background(), "end"); !errors.Is(err, wireup.ErrPeerGone) {
			fmt.Println(err)
			return 14
		}
		if err := j.Err(); err != nil {
			fmt.Println(err)
			return 15
		}
	case what == "die":
		err := j.Barrier(context.Background(), "end")
		fmt.Println(err)
		time.Sleep(time.Minute) // sleep: to be ended by the launcher
	}
	return 0
}

// buffer is a bytes.Buffer for several writers, readable meanwhile.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func ctxT(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Limit)
	t.Cleanup(cancel)
	return ctx
}

func sh(t *testing.T, s Spec, script string) (code int, out string, err error) {
	var b buffer
	s.Path, s.Args, s.Stdout, s.Stderr = "/bin/sh", []string{"-c", script}, &b, &b
	code, err = Run(ctxT(t), s)
	return code, b.String(), err
}

func self(t *testing.T, s Spec, what string) (code int, out string, err error) {
	exe, err := os.Executable()
	require.NoError(t, err)
	var b buffer
	s.Path, s.Args, s.Env, s.Stdout, s.Stderr = exe, []string{what}, append(s.Env, roleEnv+"=rank"), &b, &b
	code, err = Run(ctxT(t), s)
	return code, b.String(), err
}

func TestRanksMeet(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			code, out, err := self(t, Spec{N: 3, Wireup: network}, "")
			require.NoError(t, err, out)
			require.Zero(t, code)
			for r := range 3 {
				require.Contains(t, out, fmt.Sprintf("rank %d of 3 sees 0/3,1/3,2/3\n", r))
			}
		})
	}
}

// A rank that others report to hang has failed, whatever its process does.
func TestReportedHang(t *testing.T) {
	t.Parallel()
	code, out, err := self(t, Spec{N: 3, HangTimeout: time.Hour}, "hang")
	require.Equal(t, ExitHung, code, out)
	var hung *HungError
	require.ErrorAs(t, err, &hung)
	require.Equal(t, 1, hung.Rank)
	require.Equal(t, "no progress for 2s, says rank 0", hung.Why)
	require.NotEmpty(t, hung.Host)
	if runtime.GOOS == "linux" {
		require.Regexp(t, "^[RSD]+$", hung.State)
	}

	// Without HangTimeout, hangs are not detected.
	code, out, err = self(t, Spec{N: 2, Timeout: 100 * time.Millisecond}, "hang")
	require.Equal(t, ExitTimeout, code, out)
	require.Error(t, err)
}

func TestJobOfAJobStartsAfresh(t *testing.T) {
	t.Setenv(wireup.EnvRank, "5")
	t.Setenv(wireup.EnvRoot, "unix:/nowhere")
	t.Setenv(wireup.EnvToken, "00")
	t.Setenv(jobenv.EnvServe, "1")
	for _, launcher := range []string{"", "none", "slurm"} { // of the job above
		t.Setenv(jobenv.EnvLauncher, launcher)
		code, out, err := self(t, Spec{N: 2}, "")
		require.NoError(t, err, "%s: %s", launcher, out)
		require.Zero(t, code)
		require.Contains(t, out, "rank 1 of 2 sees 0/2,1/2\n")
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script, want string
		code         int
	}{
		"code":   {`[ $RMA_RANK = 1 ] && exit 7; exec sleep 3600`, "rank 1 .* exited with code 7", 7},
		"signal": {`[ $RMA_RANK = 2 ] && kill -KILL $$; exec sleep 3600`, `rank 2 .* was killed by SIGKILL \(killed\)`, 137},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var said []string
			code, _, err := sh(t, Spec{N: 3, Say: func(s string) { said = append(said, s) }}, c.script)
			require.Equal(t, c.code, code)
			var re *RankError
			require.ErrorAs(t, err, &re)
			require.Regexp(t, c.want, err.Error())
			require.Len(t, said, 1)
			require.Regexp(t, c.want+"; stopping 2 other", said[0])
		})
	}
	code, _, err := sh(t, Spec{N: 2}, "exit 0")
	require.NoError(t, err)
	require.Zero(t, code)
}

// The death of a rank is reported to the ranks that wait for it, and these are ended.
func TestDeathReachesTheOthers(t *testing.T) {
	t.Parallel()
	code, out, err := self(t, Spec{N: 2}, "die")
	require.Equal(t, 137, code)
	require.ErrorContains(t, err, "rank 1 ")
	require.NotContains(t, out, "timed out")
}

// A rank that ends in order before it joins is reported as well.
func TestAbsenceReachesTheOthers(t *testing.T) {
	t.Parallel()
	code, out, err := self(t, Spec{N: 2}, "absent")
	require.Equal(t, 13, code, out)
	require.ErrorContains(t, err, "rank 0 ")
	require.Contains(t, out, "its process exited with code 0 and has not joined")
}

// With KeepGoing, the death of a rank is reported to the others, and these continue.
func TestSurvivorsGoOn(t *testing.T) {
	t.Parallel()
	var said buffer
	code, out, err := self(t, Spec{N: 3, KeepGoing: true, Say: func(s string) { said.Write([]byte(s)) }}, "continue")
	require.Equal(t, 9, code, out)
	require.ErrorContains(t, err, "rank 1 ")
	require.Contains(t, said.String(), "continue")
	require.NotContains(t, said.String(), "stopping")
}

func TestAbortEndsTheJob(t *testing.T) {
	t.Parallel()
	code, out, err := self(t, Spec{N: 3}, "abort")
	if code != 7 { // unless rank 1 was stopped before it could exit
		require.Equal(t, 1, code, out)
	}
	require.Error(t, err)
}

func TestStubbornRanksAreKilled(t *testing.T) {
	t.Parallel()
	var said buffer
	code, _, err := sh(t, Spec{N: 2, Dir: t.TempDir(), Grace: 100 * time.Millisecond, Say: func(s string) { said.Write([]byte(s)) }},
		`trap '' TERM
		if [ $RMA_RANK = 0 ]; then while ! [ -e deaf ]; do sleep 0.02; done; exit 3; fi
		touch deaf; while :; do sleep 0.1; done`)
	require.Equal(t, 3, code)
	require.ErrorContains(t, err, "rank 0 ")
	require.Contains(t, said.String(), "ranks [1] did not end within 100ms")
}

func TestTimeoutAndCancel(t *testing.T) {
	t.Parallel()
	code, _, err := sh(t, Spec{N: 2, Timeout: 100 * time.Millisecond}, "exec sleep 3600")
	require.Equal(t, ExitTimeout, code)
	var te *TimeoutError
	require.ErrorAs(t, err, &te)
	require.Equal(t, []int{0, 1}, te.Running)

	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	time.AfterFunc(50*time.Millisecond, func() { cancel(reason) })
	code, err = Run(ctx, Spec{N: 2, Path: "sleep", Args: []string{"60"}})
	require.ErrorIs(t, err, reason)
	require.Equal(t, 1, code)
}

func TestCannotStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(plain, []byte("x"), 0o600))
	broken := filepath.Join(dir, "broken")
	require.NoError(t, os.WriteFile(broken, []byte("\x7fELF"), 0o700))
	for path, want := range map[string]int{"no-such-program-anywhere": 127, dir + "/none": 127, plain: 126, broken: 126} {
		code, err := Run(ctxT(t), Spec{N: 2, Path: path})
		require.Equal(t, want, code, path)
		var se *StartError
		require.ErrorAs(t, err, &se, path)
	}
	for _, s := range []Spec{{N: 0, Path: "true"}, {N: -1, Path: "true"}, {N: 1, Path: "true", Wireup: "pigeon"}} {
		_, err := Run(ctxT(t), s)
		require.ErrorIs(t, err, ErrSpec)
	}
}

// Without a place for its socket, the error says what gives one.
func TestNoDirectoryForTheSocket(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	code, _, err := sh(t, Spec{N: 1}, "exit 0")
	require.Equal(t, 1, code)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "another TMPDIR, or tcp, may help")
	code, _, err = sh(t, Spec{N: 1, Wireup: "tcp"}, "exit 0")
	require.NoError(t, err)
	require.Zero(t, code)
}

// Tagged lines stay whole, whatever the ranks do at once.
func TestTaggedOutput(t *testing.T) {
	t.Parallel()
	const lines = 200
	script := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do printf "%%s-" $RMA_RANK; printf "%%s\n" $i; echo "e$i" >&2; i=$((i+1)); done; printf last$RMA_RANK`, lines)
	_, out, err := sh(t, Spec{N: 4, Prefix: true}, script)
	require.NoError(t, err)
	next, errs, last := [4]int{}, [4]int{}, 0
	sc := bufio.NewScanner(strings.NewReader(out))
	for sc.Scan() {
		var r, a, b int
		switch line := sc.Text(); {
		case func() bool { n, _ := fmt.Sscanf(line, "[%d] e%d", &r, &a); return n == 2 }():
			require.Equal(t, errs[r], a, line)
			errs[r]++
		case func() bool { n, _ := fmt.Sscanf(line, "[%d] last%d", &r, &a); return n == 2 }():
			require.Equal(t, r, a)
			last++
		default:
			n, _ := fmt.Sscanf(line, "[%d] %d-%d", &r, &a, &b)
			require.Equal(t, 3, n, "%q", line)
			require.Equal(t, r, a, line)
			require.Equal(t, next[r], b, line)
			next[r]++
		}
	}
	require.Equal(t, [4]int{lines, lines, lines, lines}, next)
	require.Equal(t, [4]int{lines, lines, lines, lines}, errs)
	require.Equal(t, 4, last)
}

// fullDisk takes some bytes.
type fullDisk struct{ left int }

func (d *fullDisk) Write(p []byte) (int, error) {
	if d.left -= len(p); d.left < 0 {
		return 0, syscall.ENOSPC
	}
	return len(p), nil
}

// A job whose output cannot be written ends, and the reason is not a rank, whether it writes on
// or has ended.
func TestLostOutput(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script    string
		keepGoing bool
	}{
		"goes on":    {"while echo more; do :; done; exit 3", false},
		"is needed":  {"while echo more; do :; done; exit 3", true},
		"has ended":  {"echo last; echo last >&2", false},
		"unfinished": {"printf last", false},
	} {
		for _, tagged := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s tagged=%t", name, tagged), func(t *testing.T) {
				t.Parallel()
				s := Spec{N: 2, Path: "/bin/sh", Args: []string{"-c", c.script}, KeepGoing: c.keepGoing, Prefix: tagged, Stdout: &fullDisk{left: 3}}
				code, err := Run(ctxT(t), s)
				require.Equal(t, 1, code)
				var lost *OutputError
				require.ErrorAs(t, err, &lost)
				require.ErrorIs(t, err, syscall.ENOSPC)
			})
		}
	}
}

// stuck is an output that nobody reads.
type stuck struct{ done <-chan struct{} }

func (s stuck) Write(p []byte) (int, error) {
	<-s.done
	return len(p), nil
}

// The end of a job does not wait for a reader of its output.
func TestStuckOutput(t *testing.T) {
	t.Parallel()
	for _, tagged := range []bool{false, true} {
		t.Run(fmt.Sprintf("tagged=%t", tagged), func(t *testing.T) {
			t.Parallel()
			s := Spec{N: 2, Path: "/bin/sh", Args: []string{"-c", "while :; do echo more; done"}, Prefix: tagged,
				Stdout: stuck{t.Context().Done()}, Timeout: 100 * time.Millisecond, Grace: 100 * time.Millisecond,
				Say: func(string) { <-t.Context().Done() }}
			code, err := Run(ctxT(t), s)
			require.Equal(t, ExitTimeout, code)
			var te *TimeoutError
			require.ErrorAs(t, err, &te)
		})
	}
}

func TestLineWriterBoundsALine(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := newLineWriter(newOutput(), &b, 3)
	chunk := bytes.Repeat([]byte("x"), 1<<16)
	for range maxLine / len(chunk) {
		_, err := w.Write(chunk)
		require.NoError(t, err)
	}
	require.Equal(t, maxLine+len("[3] \n"), b.Len())
	w.flush()
	require.Equal(t, maxLine+len("[3] \n"), b.Len())
}

// Plain output of megabytes arrives byte for byte, through a pipe and through a file.
func TestOutputIntegrity(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer f.Close()
	var b buffer
	const script = `[ $RMA_RANK = 0 ] && i=0 && while [ $i -lt 3000 ]; do echo "line $i"; i=$((i+1)); done; cat`
	var want strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	in := strings.Repeat("from standard input\n", 5000)
	want.WriteString(in)
	for range 2 {
		s := Spec{N: 2, Path: "/bin/sh", Args: []string{"-c", script}, Stdin: strings.NewReader(in), Stdout: f}
		if _, err := Run(ctxT(t), s); err != nil {
			t.Fatal(err)
		}
		s.Stdin, s.Stdout = strings.NewReader(in), &b
		if _, err := Run(ctxT(t), s); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	require.Equal(t, want.String()+want.String(), string(got))
	require.Equal(t, want.String()+want.String(), b.String())
}

// A background process that keeps the rank's output open does not delay the end of the job,
// and does not outlive it.
func TestGrandchildrenEndWithTheirRank(t *testing.T) {
	t.Parallel()
	code, out, err := sh(t, Spec{N: 2}, `sleep 3600 & echo $!`)
	require.NoError(t, err)
	require.Zero(t, code)
	for _, pid := range strings.Fields(out) {
		requireDead(t, pid)
	}
}

func requireDead(t *testing.T, pid string) {
	t.Helper()
	_, err := strconv.Atoi(pid)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			return true
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		return strings.HasPrefix(rest, "Z")
	}, testutil.Limit, 10*time.Millisecond, "process %s lives on", pid)
}

// launcher starts this binary as a launcher of two shells that run script.
func launcher(t *testing.T, script string) (*exec.Cmd, *bufio.Reader) {
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, script)
	cmd.Env = append(os.Environ(), roleEnv+"=launcher", "TMPDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	killer := time.AfterFunc(testutil.Limit, func() { cmd.Process.Kill() })
	t.Cleanup(func() { killer.Stop(); cmd.Process.Kill(); cmd.Wait() })
	return cmd, bufio.NewReader(out)
}

func fields(t *testing.T, r *bufio.Reader) []string {
	line, err := r.ReadString('\n')
	require.NoError(t, err)
	return strings.Fields(line)
}

func TestNothingSurvivesAKilledLauncher(t *testing.T) {
	t.Parallel()
	cmd, out := launcher(t, `trap '' TERM HUP INT; sleep 3600 & echo $$ $! ${RMA_ROOT#unix:}; wait`)
	a, b := fields(t, out), fields(t, out)
	require.FileExists(t, a[2])
	require.NoError(t, cmd.Process.Kill())
	cmd.Wait()
	for _, pid := range append(a[:2], b[:2]...) {
		requireDead(t, pid)
	}
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Dir(a[2]))
		return errors.Is(err, os.ErrNotExist)
	}, testutil.Limit, 10*time.Millisecond, "the socket's directory is left behind")
}

func TestSignalsAreForwarded(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			cmd, out := launcher(t, fmt.Sprintf(`trap 'echo got; kill $p 2>/dev/null; exit 0' %d; sleep 3600 & p=$!; echo ready; wait`, int(sig)))
			fields(t, out)
			fields(t, out)
			require.NoError(t, cmd.Process.Signal(sig))
			require.Equal(t, []string{"got"}, fields(t, out))
			require.Equal(t, []string{"got"}, fields(t, out))
			require.Equal(t, []string{"end", "0", "<nil>"}, fields(t, out))
		})
	}
	t.Run("unhandled", func(t *testing.T) {
		t.Parallel()
		cmd, out := launcher(t, `echo ready; exec sleep 3600`)
		fields(t, out)
		fields(t, out)
		require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		require.Equal(t, "130", fields(t, out)[1])
	})
	t.Run("twice", func(t *testing.T) {
		t.Parallel()
		cmd, out := launcher(t, `trap 'echo got' INT; echo ready; while :; do sleep 0.05; done`)
		fields(t, out)
		fields(t, out)
		require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		require.Equal(t, []string{"got"}, fields(t, out))
		require.Equal(t, []string{"got"}, fields(t, out))
		require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		for {
			f := fields(t, out)
			if f[0] == "end" {
				require.Equal(t, "137", f[1])
				return
			}
		}
	})
}

// Far more ranks than processors start, meet and end within seconds.
func TestManyRanks(t *testing.T) {
	if testing.Short() {
		t.Skip("starts 24 processes")
	}
	t.Parallel()
	code, out, err := self(t, Spec{N: 24}, "")
	require.NoError(t, err, out)
	require.Zero(t, code)
	require.Equal(t, 24, strings.Count(out, "of 24 sees"))
}

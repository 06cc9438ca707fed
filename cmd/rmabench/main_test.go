//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/host"
	"github.com/seed33544411/rma/internal/bench/session"
	"github.com/seed33544411/rma/internal/jobenv"
	"github.com/seed33544411/rma/internal/launch"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup"
)

// envCommand makes the test binary act as rmabench, whatever its arguments.
const envCommand = "RMABENCH_TEST_COMMAND"

func TestMain(m *testing.M) {
	host.ServeCMA()
	// A command, as measuring ranks are started with: go test passes flags only. It is main with
	// its handling of signals: a launcher that has seen the other rank fail must not end rank 0
	// before it has shown the error.
	if os.Getenv(envCommand) != "" || len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		main()
	}
	testutil.Main(m)
}

// rmabench runs the command in this process; its measuring ranks are other processes.
func rmabench(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(testutil.Context(t, 15*time.Minute), args, // against hangs only: a busy machine is slow
		streams{strings.NewReader(""), &o, &e})
	return code, o.String(), e.String()
}

// succeeds is rmabench for a command that must not fail.
func succeeds(t *testing.T, args ...string) (out, errs string) {
	t.Helper()
	code, out, errs := rmabench(t, args...)
	require.Equal(t, exitOK, code, "%v: %s", args, errs)
	return out, errs
}

// refused is rmabench for a wrong use, whose error contains says.
func refused(t *testing.T, says string, args ...string) {
	t.Helper()
	code, out, errs := rmabench(t, args...)
	require.Equal(t, exitUsage, code, "%v: %s", args, errs)
	require.Contains(t, errs, says, "%v", args)
	require.Equal(t, 1, strings.Count(errs, "\n"), "one line: %s", errs)
	require.Empty(t, out, "%v", args)
}

// briefly keeps short what precedes a measurement.
func briefly(args ...string) []string {
	return append(args, "--sampling", "20ms", "--calibration", "20ms")
}

// fast keeps real measurements short.
func fast(args ...string) []string {
	return briefly(append(args, "--time", "5ms", "--iters", "20", "--stall", testutil.Limit.String())...)
}

// fabrics are the links that processes of one host always have.
var fabrics = []string{"shm", "tcp"}

func TestMeasureOverRealProcesses(t *testing.T) {
	t.Parallel()
	for _, fabric := range fabrics {
		for _, c := range []string{"lat put 8,4K", "lat get 8,70K", "lat fadd 8", "lat cas 8", "bw put 4K,1M", "bw get 64K", "rate put 8", "rate fadd 8", "lat eager 8,4K,64K", "bw eager 4K", "rate eager 8", "lat send 8,64K,3M", "bw send 4K,1M", "rate send 8", "rate send 8,4K --batch 32"} {
			t.Run(fabric+" "+c, func(t *testing.T) {
				f := strings.Fields(c)
				args := append([]string{f[0], "--op", f[1], "--sizes", f[2], "--fabric", fabric, "--format", "json"}, f[3:]...)
				out, _ := succeeds(t, fast(args...)...)
				rs, err := bench.ReadJSON(strings.NewReader(out))
				require.NoError(t, err, out)
				sizes, err := bench.ParseSizes(f[2])
				require.NoError(t, err)
				require.Len(t, rs, len(sizes))
				for i, r := range rs {
					require.Equal(t, sizes[i], r.Size)
					require.Equal(t, fabric, r.Fabric)
					require.Equal(t, f[0], string(r.Test))
					require.Equal(t, f[1], string(r.Op))
					require.GreaterOrEqual(t, r.Iters, int64(20))
					require.True(t, r.MBs > 0 && r.Mmsgs > 0, "%+v", r)
					if strings.Contains(c, "--batch") {
						require.Zero(t, r.LatUS, "streams through the engine time no operation")
						continue
					}
					require.True(t, r.LatUS.Min > 0 && r.LatUS.P50 <= r.LatUS.P99 && r.LatUS.P99 <= r.LatUS.Max, "%+v", r)
					require.NotEmpty(t, r.Machine.Kernel)
				}
			})
		}
	}
}

func TestValidateOverRealProcesses(t *testing.T) {
	t.Parallel()
	for _, fabric := range fabrics {
		for _, c := range []string{"lat put 1,8,100,4K", "lat get 70000", "bw put 100,64K", "bw get 4K", "rate fadd 8", "lat cas 8", "lat eager 1,8,9000", "bw eager 10000", "lat send 1,8,9000,700K", "bw send 1,10000,2M"} {
			t.Run(fabric+" "+c, func(t *testing.T) {
				f := strings.Fields(c)
				out, _ := succeeds(t, fast(f[0], "--op", f[1], "--sizes", f[2], "--fabric", fabric, "--validate")...)
				require.Contains(t, out, "validated")
			})
		}
	}
}

func TestFabricAutoChoosesSharedMemoryHere(t *testing.T) {
	t.Parallel()
	out, _ := succeeds(t, fast("lat", "--sizes", "8", "--format", "json")...)
	require.Contains(t, out, `"fabric":"shm"`)
}

// Wrong flags exit with code 2 and name the error, before any process is started.
func TestUsageErrors(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"fly": "unknown command", "help fly": `unknown command "fly"`, "help lat 8": `unknown command "lat 8"`, "lat --sizes 0": "zero", "lat --sizes -8": "negative", "lat --sizes 8,8": "twice", "lat --sizes 8x": "not a size",
		"lat --sizes=": "empty", "lat --sizes 64:8": "backwards", "lat --sizes 2G": "out of range", "lat --op steal": "operation", "lat --op=": "operation",
		"bw --op fadd": "no bandwidth", "lat --op cas --sizes 16": "8 bytes", "lat --fabric pigeon": "want auto", "lat --format xml": "want table",
		"lat --time 0s": "positive", "lat --time -1s": "out of range", "lat --iters 0": "positive", "lat --iters -1": "out of range", "lat --window 3": "unknown flag",
		"bw --window 0": "positive", "bw --window 100000": "out of range", "rate --count -2": "out of range", "lat --nonsense": "unknown flag", "lat 8": "unexpected argument",
		"lat --op eager --sizes 1M": "at most 64K", "bw --op send --mode rocket": "want auto", "bw --op put --mode eager": "neither modes nor tags", "bw --op get --tags 2": "neither modes nor tags", "rate --op send --tags 0": "positive", "rate --batch 8": "--op send", "rate --op send --batch 8 --connect h:1": "on this host", "bw --op send --window 4 --batch 8": "batches of 8", "rate --op send --batch 8 --tags 2": "one tag", "lat --op send --batch 8": "unknown flag", "lat --op send --sampling 0s": "positive", "lat --op send --sampling -1s": "positive", "lat --op send --calibration -1s": "positive", "rate --op send --tags -3": "positive", "choice --sampling -1s": "positive", "lat --connect h:1 --token-file /dev/null": "other users can read the secret: --token-file=/dev/null", "lat --connect h:1 --token-file /none": "--token-file: open /none", "serve": "one address", "serve host": "host:port", "serve :99999": "invalid port", "lat --connect host": "missing port", "choice --connect host:99999": "invalid port",
		"info --format xml": "want text", "doctor --format xml": "want text", "lat --time soon": "invalid argument",
	} {
		refused(t, says, strings.Fields(args)...)
	}
	for _, args := range []string{"--time 0s", "--count 0"} {
		refused(t, "want positive values", append([]string{"report", "--fabrics", "shm", "--choice", "none", "--tests", "rate", "--ops", "put"}, strings.Fields(args)...)...)
	}
	for _, label := range []string{strings.Repeat("x", 201), "\xff"} { // which the readers of results refuse
		refused(t, "200 bytes of UTF-8", "lat", "--label", label)
		refused(t, "200 bytes of UTF-8", "report", "--fabrics", "shm", "--label", label)
	}
	succeeds(t, fast("lat", "--sizes", "8", "--label", strings.Repeat("x", 200))...)
}

// A result that cannot be written ends the run, and its error is all that is said.
func TestWriterThatFails(t *testing.T) {
	t.Parallel()
	closed, err := os.Create(filepath.Join(t.TempDir(), "closed"))
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	var errs bytes.Buffer
	code := run(testutil.Context(t, testutil.Limit), fast("lat", "--sizes", "8:4M"), streams{strings.NewReader(""), closed, &errs})
	require.Equal(t, exitFailed, code)
	require.Equal(t, "rmabench: write "+closed.Name()+": file already closed\n", errs.String())
}

// A rank that the commands lack is a wrong use: its process does not run these tests again.
func TestUnknownRankIsWrongUse(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(testutil.Context(t, testutil.Limit), self, "no-such-rank")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, exitUsage, cmd.ProcessState.ExitCode(), "%s", out)
	require.Contains(t, string(out), `unknown command "no-such-rank"`)
}

func TestFailuresEndWith1(t *testing.T) {
	t.Parallel()
	code, _, errs := rmabench(t, fast("lat", "--out", "/nonexistent/x.json")...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "--out: open /nonexistent/x.json: ")
	for _, args := range []string{"coll --ops barrier", "report --format json", "choice --rounds 1000"} { // they measure for long, and write at the end
		code, _, errs = rmabench(t, append(strings.Fields(args), "--out", "/nonexistent/x.json")...)
		require.Equal(t, exitFailed, code)
		require.Regexp(t, "^rmabench: --out: open /nonexistent/x.json: no such file or directory\n$", errs, "nothing is measured")
	}
	code, _, errs = rmabench(t, fast("lat", "--out", t.TempDir())...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "directory")
	code, _, errs = rmabench(t, fast("serve", "256.0.0.1:1")[:2]...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "serve")
}

// A page that cannot be written, and results that cannot be read for it, are reported before
// anything is measured.
func TestNothingIsMeasuredInVain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.jsonl")
	require.NoError(t, os.WriteFile(bad, []byte("{\n"), 0o600))
	for _, page := range []string{"report.html", "plogp.html"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, page), 0o755))
	}
	const quick = " --fabric shm --rounds 1 --time 1ms --html "
	for args, says := range map[string]string{
		"report --choice none --fabrics shm --tests lat --ops put --sizes 8 --time 1ms --out " + dir: "--out: .*/report.html is a directory",
		"plogp --fabric shm --budget 20ms --max 16K --format html --out " + dir:                      "--out: .*/plogp.html is a directory",
		"choice --grid small" + quick + dir:                                                          "--html: .* is a directory",
		"choice --grid small" + quick + dir + "/page --add " + bad:                                   "--add: .*: line 1: ",
		"switch -n 1 --max 64" + quick + dir:                                                         "--html: .* is a directory",
		"switch -n 1 --max 64" + quick + dir + "/page --add " + bad:                                  "--add: .*: line 1: ",
		"compare --peers net --tests lat:8" + quick + "/nowhere/page":                                "--html: .* no such file or directory",
	} {
		words := strings.Fields(args)
		if words[0] == "choice" || words[0] == "switch" {
			words = briefly(words...)
		}
		code, out, errs := rmabench(t, words...)
		require.Equal(t, exitFailed, code, "%s: %s", args, errs)
		require.Regexp(t, "^rmabench: "+says+"[^\n]*\n$", errs)
		require.Empty(t, out, args)
	}
}

func TestEveryCommandHasHelpWithExamples(t *testing.T) {
	t.Parallel()
	for _, c := range []string{"", "lat", "bw", "rate", "serve", "info", "doctor", "report", "rendezvous", "compare", "switch", "choice", "explain", "ablate", "plogp"} {
		out, _ := succeeds(t, append(strings.Fields(c), "--help")...)
		require.Contains(t, out, "Examples:", c)
		require.Contains(t, out, "Usage:", c)
		same, _ := succeeds(t, append([]string{"help"}, strings.Fields(c)...)...)
		require.Equal(t, out, same)
	}
	out, _ := succeeds(t, "--help")
	require.Contains(t, out, "export RMA_TOKEN=", "serve is refused without")
	out, _ = succeeds(t, "lat", "--help")
	require.Regexp(t, "--connect host:port .* up to 2m0s", out)
}

// The format of benchstat's parser: a name, a count, then pairs of value and unit.
func TestGoFormatIsABenchmark(t *testing.T) {
	t.Parallel()
	out, _ := succeeds(t, fast("rate", "--count", "3", "--format", "go", "--fabric", "shm")...)
	line := regexp.MustCompile(`^Benchmark\S+-\d+\s+\d+(\s+[0-9.]+ \S+)+$`)
	n := 0
	for l := range strings.Lines(out) {
		if strings.HasPrefix(l, "Benchmark") {
			require.Regexp(t, line, strings.TrimSpace(l))
			require.Contains(t, l, " ns/op")
			n++
		}
	}
	require.Equal(t, 3, n)
}

// Under a launcher two ranks of the job measure, the others wait, and rank 0 prints.
func TestUnderALauncher(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	for _, n := range []int{2, 4} {
		var out, errs bytes.Buffer
		code, err := launch.Run(testutil.Context(t, 60*time.Second), launch.Spec{
			N: n, Path: self, Args: fast("lat", "--sizes", "8,64", "--fabric", "shm", "--format", "json"),
			Env: []string{envCommand + "=1"}, Stdout: &out, Stderr: &errs, Timeout: testutil.Limit,
		})
		require.NoError(t, err, errs.String())
		require.Zero(t, code)
		rs, err := bench.ReadJSON(&out)
		require.NoError(t, err)
		require.Len(t, rs, 2)
	}
	var out, errs bytes.Buffer
	code, err := launch.Run(testutil.Context(t, testutil.Limit), launch.Spec{ // through package rma
		N: 2, Path: self, Args: []string{"overlap", "--fabric", "tcp", "--sizes", "1K", "--who", "sender", "--ratios", "1", "--rounds", "1", "--time", "5ms", "--format", "json"},
		Env: []string{envCommand + "=1"}, Stdout: &out, Stderr: &errs, Timeout: testutil.Limit,
	})
	require.NoError(t, err, errs.String())
	require.Zero(t, code)
	require.Contains(t, out.String(), `"fabric":"tcp"`)

	// The files to read and the directory of the results exist where rank 0 is.
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "0", "results"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "1"), 0o755))
	plogp := sampleQuick("--fabric", "shm")
	succeeds(t, append(plogp, "--format", "json", "--out", filepath.Join(dir, "0", "lines"))...)
	steps := briefly("switch", "--fabric", "shm", "-n", "1", "--max", "64", "--rounds", "1", "--time", "1ms")
	succeeds(t, append(steps, "--format", "json", "--out", filepath.Join(dir, "0", "steps"))...)
	for _, args := range [][]string{
		fast("lat", "--sizes", "8", "--out", "results/lat"),
		append(plogp, "--format", "html", "--out", "results", "--add", "lines"),
		append(steps, "--html", "results/steps", "--add", "steps"),
	} {
		errs.Reset()
		_, err = launch.Run(testutil.Context(t, testutil.Limit), launch.Spec{
			N: 2, Path: "/bin/sh", Dir: dir, Args: append([]string{"-c", `cd $RMA_RANK && exec "$0" "$@"`, self}, args...),
			Env: []string{envCommand + "=1"}, Stderr: &errs, Timeout: testutil.Limit,
		})
		require.NoError(t, err, errs.String())
	}
	require.FileExists(t, filepath.Join(dir, "0", "results", "plogp.html"))
	require.NoDirExists(t, filepath.Join(dir, "1", "results"))
	require.FileExists(t, filepath.Join(dir, "0", "results", "lat"))
	out.Reset()
	errs.Reset()
	code, err = launch.Run(testutil.Context(t, 60*time.Second), launch.Spec{
		N: 1, Path: self, Args: fast("lat"), Env: []string{envCommand + "=1"}, Stdout: &out, Stderr: &errs, Timeout: testutil.Limit,
	})
	require.Error(t, err)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs.String(), "at least 2 ranks")
}

// An invalid setting of one rank is reported, once, whichever rank it is.
func TestSettingOfOneRank(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	for _, rank := range []string{"0", "1"} {
		for _, args := range []string{"lat", "plogp", "rendezvous", "threads"} {
			var errs bytes.Buffer
			code, err := launch.Run(testutil.Context(t, testutil.Limit), launch.Spec{
				N: 2, Path: "/bin/sh", Args: []string{"-c", `[ $RMA_RANK = "$2" ] && export RMA_DEPTH=many; exec "$0" "$1"`, self, args, rank},
				Env: []string{envCommand + "=1"}, Stderr: &errs, Timeout: testutil.Limit,
			})
			require.Error(t, err)
			require.Equal(t, exitFailed, code)
			require.Equal(t, 1, strings.Count(errs.String(), `RMA_DEPTH="many": want a number of requests`), "rank %s of %s: %s", rank, args, errs.String())
		}
	}
}

// What starts its ranks itself does not do it in each rank of a job, but in a process that is told to
// be alone: such as that of a step of Slurm.
func TestStartsNoRanksUnderALauncher(t *testing.T) {
	t.Setenv(wireup.EnvRank, "0")
	t.Setenv(wireup.EnvSize, "2")
	const links = " --links 127.0.0.1,127.0.0.2 --peer-links 127.0.0.3,127.0.0.4"
	for _, args := range []string{"coll", "coll --choice", "nbc", "rails" + links, "report", "sweep", "compare", "sockets", "load", "plogp --startup", "rate --op send --batch 8", "overlap --fabric shm --peers openmpi"} {
		refused(t, "starts its ranks itself, on this host: run it outside of a job, or once with RMA_LAUNCHER=none", strings.Fields(args)...)
	}
	t.Setenv(jobenv.EnvLauncher, "none")
	succeeds(t, "coll", "--ops", "barrier", "--ranks", "2", "--rounds", "1", "--time", "1ms")
}

func command(ctx context.Context, t *testing.T, env []string, args ...string) (start func() (*bufio.Reader, func() error), errs *bytes.Buffer) {
	t.Helper()
	errs = &bytes.Buffer{}
	return func() (*bufio.Reader, func() error) {
		r, w := io.Pipe()
		done := make(chan error, 1)
		go func() {
			code := run(ctx, args, streams{strings.NewReader(""), w, errs})
			w.Close()
			if code != exitOK {
				done <- errors.New("exit code not 0: " + errs.String())
				return
			}
			done <- nil
		}()
		return bufio.NewReader(r), func() error { return <-done }
	}, errs
}

// tokenFile writes a file with a secret.
func tokenFile(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("5a", 16)+"\n"), 0o600))
	return path
}

// What fails after an interrupt fails of it: a rank that notices first that the other is gone is
// interrupted as well, and so is the one that shows nothing.
func TestInterruptedInAJob(t *testing.T) {
	for name, value := range map[string]string{"RMA_RANK": "1", "RMA_SIZE": "2", "RMA_ROOT": "127.0.0.1:1", "RMA_INSECURE": "1"} {
		t.Setenv(name, value)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	var errs bytes.Buffer
	code := run(ctx, []string{"info"}, streams{strings.NewReader(""), lastWrite(interrupt), &errs})
	require.Equal(t, exitInterrupted, code)
	require.Equal(t, "rmabench: interrupted\n", errs.String())
	errs.Reset()
	code = run(ctx, fast("lat", "--fabric", "shm"), streams{strings.NewReader(""), io.Discard, &errs})
	require.Equal(t, exitInterrupted, code)
	require.Empty(t, errs.String())
}

// lastWrite fails, after the call of a function.
type lastWrite func()

func (w lastWrite) Write([]byte) (int, error) {
	w()
	return 0, wireup.ErrPeerGone
}

// A second interrupt ends a command that waits for something else than its context: for a pipe.
func TestSecondInterruptEndsAtOnce(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	cmd := exec.CommandContext(testutil.Context(t, testutil.Limit), self, "report", "--fabrics", "none", "--add", pipe)
	cmd.Env = append(os.Environ(), envCommand+"=1")
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	testutil.Eventually(t, testutil.Limit, func() bool { // it reads
		w, err := os.OpenFile(pipe, os.O_WRONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			t.Cleanup(func() { w.Close() })
		}
		return err == nil
	}, "the pipe is not read")
	testutil.Eventually(t, testutil.Limit, func() bool {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		return len(ended) > 0
	}, "it goes on")
	var exit *exec.ExitError
	require.ErrorAs(t, <-ended, &exit)
	require.Equal(t, syscall.SIGINT, exit.Sys().(syscall.WaitStatus).Signal())
}

// Neither serve nor --connect works without a secret.
func TestServeWithoutASecret(t *testing.T) {
	for _, args := range [][]string{{"serve", "127.0.0.1:0"}, {"serve", "127.0.0.1:0", "--token", "00ff"}, fast("lat", "--connect", "127.0.0.1:1", "--sizes", "8")} {
		code, _, errs := rmabench(t, args...)
		require.Equal(t, exitFailed, code)
		require.Contains(t, errs, "a secret of at least 16 bytes")
	}
	open := tokenFile(t)
	require.NoError(t, os.Chmod(open, 0o644))
	code, _, errs := rmabench(t, "serve", "127.0.0.1:0", "--token-file", open)
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "chmod 600")
}

// Two "hosts": serve and --connect meet by address and token.
func TestServeAndConnect(t *testing.T) {
	file := tokenFile(t)
	ctx := testutil.Context(t, 60*time.Second)
	for _, fabric := range fabrics {
		start, _ := command(ctx, t, nil, "serve", "127.0.0.1:0", "--once", "--token-file", file)
		out, wait := start()
		l, err := out.ReadString('\n')
		require.NoError(t, err)
		addr := strings.TrimSpace(strings.TrimPrefix(l, "serving on "))
		_, _, err = net.SplitHostPort(addr)
		require.NoError(t, err, l)

		code, _, errs := rmabench(t, fast("lat", "--connect", addr, "--token", strings.Repeat("12", 16), "--sizes", "8")...)
		require.Equal(t, exitFailed, code)
		require.Contains(t, errs, "wrong job token")
		require.Contains(t, errs, "--token is deprecated")
		code, _, errs = rmabench(t, fast("lat", "--connect", addr, "--token", "1234", "--sizes", "8")...)
		require.Equal(t, exitFailed, code)
		require.Contains(t, errs, "at least 16 bytes and has one of 2")

		code, o, errs := rmabench(t, fast("bw", "--connect", addr, "--token-file", file, "--sizes", "8,4K", "--fabric", fabric, "--validate", "--pin=false")...)
		require.Equal(t, exitOK, code, errs)
		require.Contains(t, o, fabric)
		require.NoError(t, wait())
	}
}

// All kinds of work between two ranks also work between two hosts.
func TestServeEverything(t *testing.T) {
	file := tokenFile(t)
	ctx := testutil.Context(t, 5*time.Minute)
	for args, want := range map[string]string{
		"plogp --budget 20ms --max 16K --format json":                                               `"tables"`,
		"plogp --budget 20ms --max 16K --compare --format json":                                     `"changes"`,
		"explain --batch 4x64 --sampling 20ms --no-calibration":                                     "plan: ",
		"switch -n 2 --max 64 --sampling 20ms --no-calibration --rounds 1 --time 1ms --format json": `"points"`,
		"rendezvous --sizes 64K --rounds 1 --time 1ms --window 2 --format json":                     `"ratio"`,
	} {
		start, _ := command(ctx, t, nil, "serve", "127.0.0.1:0", "--once", "--token-file", file)
		out, wait := start()
		l, err := out.ReadString('\n')
		require.NoError(t, err)
		addr := strings.TrimSpace(strings.TrimPrefix(l, "serving on "))
		profiles := []string{}
		if strings.HasPrefix(args, "plogp") {
			profiles = []string{"--profiles", t.TempDir()}
		}
		code, o, errs := rmabench(t, slices.Concat(strings.Fields(args), []string{"--connect", addr, "--token-file", file, "--fabric", "tcp", "--pin=false"}, profiles)...)
		if !strings.Contains(args, "--compare") { // drift, on a busy machine
			require.Equal(t, exitOK, code, "%s: %s", args, errs)
		}
		require.Contains(t, o, want, args)
		require.NoError(t, wait(), args)
	}
}

// A killed measuring rank ends the run quickly, with a reason. Not parallel: it kills any
// child of this process.
func TestKilledRankEndsTheRun(t *testing.T) {
	for _, fabric := range fabrics {
		var o, e bytes.Buffer
		ctx, cancel := context.WithCancel(testutil.Context(t, 60*time.Second))
		killed := false
		err := session.Local(ctx, bench.Request{Fabric: fabric, Plans: []bench.Plan{
			{Test: bench.Lat, Op: bench.Put, Size: []int{8, 16}, Time: 10 * time.Millisecond, Count: 1000},
		}}, &e, func(r bench.Result) error {
			if !killed {
				killed = true
				killARank(t)
			}
			return nil
		})
		cancel()
		require.Error(t, err)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, o.String())
		require.True(t, killed)
	}
}

// killARank kills one of this process's measuring children.
func killARank(t *testing.T) {
	pids, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	me := os.Getpid()
	for _, p := range pids {
		b, err := os.ReadFile(p)
		if err != nil || !strings.HasSuffix(string(b), "\x00"+session.ChildArg+"\x00") {
			continue
		}
		pid, ppid := ids(filepath.Dir(p))
		if ppid != me {
			continue
		}
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		return
	}
	t.Error("no child found")
}

func ids(dir string) (pid, ppid int) {
	b, _ := os.ReadFile(dir + "/status")
	for l := range strings.Lines(string(b)) {
		name, v, _ := strings.Cut(l, ":")
		var n int
		if json.Unmarshal([]byte(strings.TrimSpace(v)), &n) == nil {
			switch name {
			case "Pid":
				pid = n
			case "PPid":
				ppid = n
			}
		}
	}
	return pid, ppid
}

func TestInfoAndDoctorForReal(t *testing.T) {
	t.Parallel()
	code, out, errs := rmabench(t, "info")
	require.Equal(t, exitOK, code, errs)
	for _, want := range []string{"cpu", "kernel", "shm", "tcp", "verbs", "support"} {
		require.Contains(t, out, want)
	}
	code, out, errs = rmabench(t, "info", "--format", "json")
	require.Equal(t, exitOK, code, errs)
	var in host.Info
	require.NoError(t, json.Unmarshal([]byte(out), &in))
	require.Len(t, in.Links, 3)
	for _, l := range in.Links {
		require.Equal(t, l.Usable, l.Why == "", "%+v", l)
	}
	require.NotEmpty(t, in.Verbs.Reason)

	code, out, _ = rmabench(t, "doctor", "--format", "json")
	var fs []host.Finding
	require.NoError(t, json.Unmarshal([]byte(out), &fs))
	require.Equal(t, host.Failed(fs), code == exitFailed)
	code2, out, _ := rmabench(t, "doctor")
	require.Equal(t, code, code2)
	require.Contains(t, out, "memlock")

	// The whole report, to the screen and to a file.
	file := filepath.Join(t.TempDir(), "report.json")
	old := file + ".old"
	require.NoError(t, os.WriteFile(old, nil, 0o600))
	require.NoError(t, os.Link(old, file))
	code, out, errs = rmabench(t, "doctor", "--full", "--device", "no-such-device", "--out", file)
	require.Equal(t, exitFailed, code, errs)
	require.Contains(t, out, "notification")
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	var r doctorReport
	require.NoError(t, json.Unmarshal(b, &r))
	require.Equal(t, in.Links, r.Info.Links)
	require.Len(t, r.Device.Checks, 6)
	b, err = os.ReadFile(old)
	require.NoError(t, err)
	require.Empty(t, b, "the report replaces the old file when it is whole")
	require.True(t, host.Failed(r.Device.Checks))
	code, _, errs = rmabench(t, "doctor", "--out", file)
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "--full")
}

func TestProgressLines(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := newProgress(&b, 1000)
	for range 998 {
		p.step(pointText(&bench.Result{Fabric: "shm", Test: bench.BW, Op: bench.Get, Size: 4096}))
	}
	require.Regexp(t, `^1/1000 \(0 %\), about \d.* left: shm bw get 4K\n`, b.String())
	require.Less(t, strings.Count(b.String(), "\n"), 100, "a line now and then")
	p.skip(1)
	p.step(pointText(&bench.Result{Fabric: "tcp", Test: bench.BW, Op: bench.Get, Size: 4096}))
	p.close(true)
	require.True(t, strings.HasSuffix(b.String(), "1000/1000 (100 %), about 0s left: tcp bw get 4K\n"), b.String())

	b.Reset() // for programs
	p = newProgress(&b, 3)
	p.all = true
	p.step(pointText(&bench.Result{Fabric: "shm", Test: bench.BW, Op: bench.Get, Size: 4096}))
	p.step(pointText(&bench.Result{Fabric: "shm", Test: bench.BW, Op: bench.Get, Size: 8192}))
	require.Equal(t, "1/3 shm bw get 4K\n2/3 shm bw get 8K\n", b.String())
	p = newProgress(nil, 1)
	p.step("")
	p.close(false)
}

func TestMachineWithoutAnAnswerIsNotATerminal(t *testing.T) {
	t.Parallel()
	require.False(t, isTerminal(&bytes.Buffer{}))
	f, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer f.Close()
	require.False(t, isTerminal(f))
}

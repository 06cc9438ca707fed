package launch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/seed33544411/rma/internal/topo"
	"github.com/seed33544411/rma/internal/wireup"
)

// DefaultGrace bounds the time that ranks may take to end after SIGTERM: enough to write
// their data, and short for a waiting user.
const DefaultGrace = 5 * time.Second

// Spec describes a job.
type Spec struct {
	N    int      // ranks
	Path string   // program: a path, or a name to look up in PATH
	Args []string // arguments, without the program's name
	Env  []string // added to this process's environment
	Dir  string   // working directory; empty: this process's

	// Stdin goes to rank 0; the others read nothing. Nil: rank 0 as well.
	Stdin io.Reader

	// Stdout and Stderr get the output of all ranks. Ranks inherit an *os.File directly,
	// unless Prefix is set. Nil discards the output.
	Stdout, Stderr io.Writer

	// Prefix forwards whole lines, tagged with the rank: "[3] line". A line above 1 MiB is
	// split.
	Prefix bool

	// Wireup is the socket of the wire-up server: "unix" (default), or "tcp" over the
	// loopback interface.
	Wireup string

	// Bind has a place for each rank; see Place. Nil: the ranks may run where this process
	// may.
	Bind []topo.Binding

	// BindProgress tells each rank of Bind to use a free core of its node for its engine.
	BindProgress bool

	// KeepGoing lets the other ranks continue when one has failed.
	KeepGoing bool

	// HangTimeout is the ranks' RMA_HANG_TIMEOUT, at least 100 ms, and how long one may be
	// stopped (SIGSTOP), or found by others to make no progress, before it has failed (exit
	// code 125). Zero: hangs are not detected.
	HangTimeout time.Duration

	// Timeout ends the job (exit code 124). Zero: none.
	Timeout time.Duration

	// Grace is the time between SIGTERM and SIGKILL. Zero means DefaultGrace.
	Grace time.Duration

	// Say gets a line for the user when the job ends early, one after the other, from a goroutine of Run.
	// It may be nil.
	Say func(text string)

	// Log is the wire-up server's logger. It may be nil.
	Log *slog.Logger
}

// Run runs the job and returns its exit code: 0 if every rank exited with 0, else that of
// the first rank that failed (128 + signal if it was killed), also under Spec.KeepGoing;
// 124 after Spec.Timeout, 125 after Spec.HangTimeout, 127 or 126 if the program cannot be
// found or started. If the code is not 0, the error is the reason (*RankError, *HungError,
// *TimeoutError, *StartError, *OutputError, *wireup.AbortError, the context's, or one that
// wraps ErrSpec: code 2).
//
// While it runs, it forwards signals of this process to the ranks. A second SIGINT or
// SIGTERM kills the ranks. SIGHUP and SIGINT stay ignored, by the ranks as well, if this
// process was started so (nohup).
func Run(ctx context.Context, s Spec) (code int, err error) {
	if err := supported(); err != nil {
		return 1, err
	}
	if s.N < 1 || s.N > wireup.MaxRanks {
		return ExitUsage, fmt.Errorf("%w: %d ranks, want 1 … %d", ErrSpec, s.N, wireup.MaxRanks)
	}
	if s.Bind != nil && len(s.Bind) != s.N {
		return ExitUsage, fmt.Errorf("%w: %d ranks, places for %d", ErrSpec, s.N, len(s.Bind))
	}
	if s.Grace <= 0 {
		s.Grace = DefaultGrace
	}
	if s.Say == nil {
		s.Say = func(string) {}
	}
	t := newTeller(s.Say, 2*s.N+16)
	defer t.end()
	s.Say = t.say
	path, err := exec.LookPath(s.Path)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		e := &StartError{Rank: 0, Path: s.Path, Err: err}
		return e.exitCode(), e
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs // resolve a relative path here, not in Dir
	}
	sigs := make(chan os.Signal, 16)
	signal.Notify(sigs, slices.DeleteFunc(slices.Clone(forwarded), signal.Ignored)...)
	defer signal.Stop(sigs)
	// Without a handler, a write to a closed standard output or error would end this process,
	// before it could end the ranks. They do not inherit the handler. It stays: the caller may
	// have an error to print.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	tls, err := wireup.TLSFrom(os.Getenv) // the ranks use the same
	if err != nil {
		return 1, err
	}
	ln, root, dir, err := listen(s.Wireup)
	if err != nil {
		return 1, err
	}
	if dir != "" {
		defer os.RemoveAll(dir)
	}
	token := make([]byte, 32)
	if _, err := rand.Read(token); err != nil {
		return 1, err
	}
	w := newWatch(s.HangTimeout, s.N)
	srv, err := wireup.Serve(context.WithoutCancel(ctx), ln, wireup.ServerConfig{Size: s.N, Token: token, TLS: tls, Hung: w.report, Log: s.Log})
	if err != nil {
		return 1, err
	}
	defer srv.Close()

	g := startGuard(dir)
	defer g.close()
	j := &job{spec: &s, srv: srv, watch: w, guard: g, exits: make(chan exit, s.N), out: newOutput()}
	config := wireup.Config{Size: s.N, Root: root, Token: token, Job: fmt.Sprintf("%d-%s", os.Getpid(), hex.EncodeToString(token[:4]))}
	release := make(chan struct{})
	defer close(release)
	if err := j.start(path, config, release); err != nil {
		j.stop(syscall.SIGKILL)
		for j.running() > 0 {
			j.note(<-j.exits)
		}
		return err.exitCode(), err
	}
	return j.run(ctx, sigs)
}

// listen opens the wire-up socket: a Unix socket in a directory that only
// this user may enter, or a loopback port.
func listen(network string) (ln net.Listener, root, dir string, err error) {
	switch network {
	case "", "unix":
		if dir, err = os.MkdirTemp("", "rma-"); err != nil {
			return nil, "", "", fmt.Errorf("launch: directory of the wire-up socket: %w (another TMPDIR, or tcp, may help)", err)
		}
		path := filepath.Join(dir, "s")
		if ln, err = net.Listen("unix", path); err != nil {
			os.RemoveAll(dir)
			return nil, "", "", fmt.Errorf("launch: wire-up socket: %w (a shorter TMPDIR, or tcp, may help)", err)
		}
		return ln, "unix:" + path, dir, nil
	case "tcp":
		if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, "", "", fmt.Errorf("launch: wire-up socket: %w", err)
		}
		return ln, "tcp:" + ln.Addr().String(), "", nil
	}
	return nil, "", "", fmt.Errorf("%w: wire-up %q, want unix or tcp", ErrSpec, network)
}

// job is a running job. The goroutine of run owns it.
type job struct {
	spec  *Spec
	srv   *wireup.Server
	watch *watch
	exits chan exit
	ranks []*rank
	ended int

	out     *output
	guardMu sync.Mutex
	guard   *guard

	code     int
	err      error // the first reason why the job failed
	stopping bool
	kill     <-chan time.Time
	leave    <-chan time.Time
}

// start starts all ranks, from a goroutine that keeps its thread until
// release closes: the kernel kills the ranks when that thread ends.
func (j *job) start(path string, config wireup.Config, release <-chan struct{}) *StartError {
	started := make(chan *StartError)
	go func() {
		runtime.LockOSThread()
		var failed *StartError
		j.guard.starting(config.Job)
		for no := range j.spec.N {
			r := &rank{no: no}
			if j.spec.Bind != nil {
				r.place = &j.spec.Bind[no]
			}
			config.Rank, config.LocalRank = no, no
			if err := r.start(j.spec, path, environ(j.spec, config), j.out); err != nil {
				failed = &StartError{Rank: no, Path: j.spec.Path, Err: err}
				break
			}
			j.tellGuard((*guard).add, r.cmd.Process.Pid)
			j.ranks = append(j.ranks, r)
			go func() { j.exits <- r.wait(func(pgid int) { j.tellGuard((*guard).remove, pgid) }) }()
		}
		j.tellGuard(func(g *guard, _ int) { g.started() }, 0)
		freed := unbind(j.spec.Bind)
		started <- failed
		<-release
		if freed {
			runtime.UnlockOSThread() // otherwise the thread ends with the goroutine
		}
	}()
	return <-started
}

func (j *job) tellGuard(what func(*guard, int), pgid int) {
	j.guardMu.Lock()
	defer j.guardMu.Unlock()
	what(j.guard, pgid)
}

func (j *job) running() int { return len(j.ranks) - j.ended }

// others counts the ranks that have neither ended nor hang.
func (j *job) others() (n int) {
	for _, r := range j.ranks {
		if !r.ended && !r.hung {
			n++
		}
	}
	return n
}

func (j *job) run(ctx context.Context, sigs <-chan os.Signal) (int, error) {
	var timeout <-chan time.Time
	if j.spec.Timeout > 0 {
		t := time.NewTimer(j.spec.Timeout)
		defer t.Stop()
		timeout = t.C
	}
	var checks <-chan time.Time
	if j.spec.HangTimeout > 0 {
		t := time.NewTicker(j.watch.every)
		defer t.Stop()
		checks = t.C
	}
	done, aborted, interrupts := ctx.Done(), j.srv.Done(), 0
	for j.running() > 0 {
		select {
		case e := <-j.exits:
			j.note(e)
		case sig := <-sigs:
			j.signal(sig.(syscall.Signal))
			if sig == syscall.SIGINT || sig == syscall.SIGTERM {
				if interrupts++; interrupts == 2 {
					j.spec.Say("second interrupt: killing the ranks")
					j.end()
				}
			}
		case <-timeout:
			j.fail(ExitTimeout, &TimeoutError{Limit: j.spec.Timeout, Running: j.alive()})
		case <-done:
			done = nil
			j.fail(1, context.Cause(ctx))
		case <-aborted:
			aborted = nil
			j.fail(1, j.srv.Err())
		case <-checks:
			for _, r := range j.watch.look(j.ranks) {
				j.hung(r, fmt.Sprintf("stopped for %v", r.silent.Round(time.Millisecond)))
			}
		case r := <-j.watch.reports:
			j.hung(j.ranks[r.rank], fmt.Sprintf("%s, says rank %d", r.why, r.from))
		case err := <-j.out.lost:
			j.fail(1, &OutputError{Err: err})
		case <-j.kill:
			j.kill = nil
			j.spec.Say(fmt.Sprintf("ranks %v did not end within %v: killing them", j.alive(), j.spec.Grace))
			j.end()
		case <-j.leave:
			j.fail(1, &OutputError{Err: errUnread})
			return j.code, j.err
		}
		j.endStopped()
	}
	select {
	case err := <-j.out.lost: // what the last rank has written
		j.fail(1, &OutputError{Err: err})
	default:
	}
	return j.code, j.err
}

// note records the end of a rank.
func (j *job) note(e exit) {
	r := j.ranks[e.rank]
	r.ended = true
	j.ended++
	if e.code == 0 {
		j.srv.Absent(e.rank, "its process exited with code 0 and has not joined")
		return // if it had joined, the server reports its end to ranks that still wait for it
	}
	re := &RankError{Rank: e.rank, Pid: r.cmd.Process.Pid, Code: e.code, Signal: e.signal}
	j.srv.Lost(e.rank, re.Error())
	if errors.Is(j.err, wireup.ErrAborted) && j.code == 1 && e.signal == 0 {
		j.code = e.code // the exit code of the rank that aborted the job is more specific
	}
	j.failed(e.code, re)
}

// failed records the failure of a rank: it ends the job, unless KeepGoing lets the others
// continue.
func (j *job) failed(code int, err error) {
	if !j.spec.KeepGoing || j.stopping {
		j.fail(code, err)
		return
	}
	if j.err == nil {
		j.code, j.err = code, err
	}
	j.spec.Say(fmt.Sprintf("%v; %d other rank(s) continue", err, j.others()))
}

// fail ends the job with this reason, unless the job is ending already. It overrides the
// failures of ranks without which the job has continued.
func (j *job) fail(code int, err error) {
	if j.stopping {
		return
	}
	j.code, j.err = code, err
	if j.running() > 0 {
		j.spec.Say(fmt.Sprintf("%v; stopping %d other rank(s)", err, j.others()))
	}
	j.stop(syscall.SIGTERM)
}

// stop begins to end all ranks.
func (j *job) stop(sig syscall.Signal) {
	if j.stopping {
		return
	}
	j.stopping = true
	j.signal(sig)
	j.signal(sigCont) // a stopped process does not react to other signals
	if sig != syscall.SIGKILL {
		j.kill = time.After(j.spec.Grace)
	}
}

// end kills all ranks. One that still has not ended long after is dead, but a write of its
// output blocks: the job ends without it.
func (j *job) end() {
	j.signal(syscall.SIGKILL)
	j.leave = time.After(2 * outputDelay)
}

func (j *job) signal(sig syscall.Signal) {
	for _, r := range j.ranks {
		if !r.ended {
			r.signal(sig)
		}
	}
}

func (j *job) alive() (ranks []int) {
	for _, r := range j.ranks {
		if !r.ended {
			ranks = append(ranks, r.no)
		}
	}
	return ranks
}

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/internal/wireup"
)

// jobSpec describes the ranks to start.
type jobSpec struct {
	Ranks   int
	Fabric  string                       // RMA_FABRIC
	Root    string                       // "unix" or "tcp"
	Listen  func() (net.Listener, error) // makes the wire-up server's listener; nil: as Root says, in a directory or on the loopback interface
	Open    bool                         // every user can reach the directory of the job, and its socket
	NoToken bool                         // the job has no secret
	Env     []string                     // of all ranks, in addition to the job's
	Work    work
	Absent  []int                                  // ranks that the campaign plays itself
	Wrap    func(rank int, argv []string) []string // nil: unchanged
}

// job is a job of processes, whose wire-up server this process runs.
type job struct {
	spec  jobSpec
	dir   string
	addr  string // of the wire-up server
	token []byte
	srv   *wireup.Server
	procs []*proc

	groups []*cgroup // control groups of the job's processes
}

// proc is a rank, seen from outside.
type proc struct {
	job   *job
	rank  int
	cmd   *exec.Cmd
	in    io.WriteCloser
	ended chan struct{}

	mu     sync.Mutex
	events []event
	news   chan struct{} // closed and replaced with every event
	stderr bytes.Buffer
	err    error // its exit error, once ended is closed
}

// now returns the system's monotonic clock, the same in all processes.
func now() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano())
}

func startJob(s jobSpec) (*job, error) {
	j := &job{spec: s, token: make([]byte, 32)}
	_, _ = rand.Read(j.token)
	var err error
	if j.dir, err = os.MkdirTemp("", "rma-chaos-"); err != nil {
		return nil, err
	}
	if s.NoToken {
		j.token = nil
	}
	listen := s.Listen
	if listen == nil {
		listen = func() (net.Listener, error) {
			if s.Root == "tcp" {
				return net.Listen("tcp", "127.0.0.1:0")
			}
			return net.Listen("unix", filepath.Join(j.dir, "s"))
		}
	}
	ln, err := listen()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(j.dir))
	}
	j.addr = ln.Addr().Network() + ":" + ln.Addr().String()
	if j.srv, err = wireup.Serve(context.Background(), ln, wireup.ServerConfig{Size: s.Ranks, Token: j.token}); err != nil {
		return nil, errors.Join(err, os.RemoveAll(j.dir))
	}
	if s.Open {
		_ = os.Chmod(j.dir, 0o755)
		_ = os.Chmod(filepath.Join(j.dir, "s"), 0o777)
	}
	for r := range s.Ranks {
		if slices.Contains(s.Absent, r) {
			continue
		}
		p, err := j.startRank(r)
		if err != nil {
			j.kill()
			return nil, fmt.Errorf("start rank %d: %w", r, err)
		}
		j.procs = append(j.procs, p)
	}
	return j, nil
}

// begin starts a job and waits until its ranks communicate; it returns nil if they do not,
// which is a fault of the round.
func begin(r *round, s jobSpec) *job {
	j, err := startJob(s)
	if r.failed(err) {
		return nil
	}
	if r.failed(j.ready(startLimit)) {
		j.kill()
		return nil
	}
	return j
}

func (j *job) startRank(rank int) (*proc, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := j.spec.Work
	w.Lies = w.Mutant > 0 && rank == j.spec.Ranks-1
	spec, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	argv := []string{self}
	if j.spec.Wrap != nil {
		argv = j.spec.Wrap(rank, argv)
	}
	p := &proc{job: j, rank: rank, cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{}), news: make(chan struct{})}
	c := wireup.Config{Rank: rank, Size: j.spec.Ranks, Root: j.addr, Token: j.token, LocalRank: rank, Job: filepath.Base(j.dir)}
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "RMA_") })
	p.cmd.Env = append(append(p.cmd.Env, c.Environ()...), fmt.Sprintf("RMA_LOCAL_SIZE=%d", j.spec.Ranks), "RMA_FABRIC="+j.spec.Fabric,
		"RMA_PROFILES="+filepath.Join(j.dir, "profiles"), workEnv+"="+string(spec))
	p.cmd.Env = append(p.cmd.Env, j.spec.Env...)
	p.cmd.Stderr = (*errorOutput)(p)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var e event
			if err := json.Unmarshal(lines.Bytes(), &e); err == nil {
				p.note(e)
			}
		}
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

func (p *proc) note(e event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, e)
	close(p.news)
	p.news = make(chan struct{})
}

// errorOutput keeps a rank's standard error, of which there is little.
type errorOutput proc

func (t *errorOutput) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stderr.Len() < 1<<20 {
		t.stderr.Write(b)
	}
	return len(b), nil
}

// find returns the events that match.
func (p *proc) find(match func(event) bool) (found []event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.events {
		if match(e) {
			found = append(found, e)
		}
	}
	return found
}

var errEnded = errors.New("ended")

// await returns when n events match, or an error with the number of matches when the
// process has ended (errEnded) or d has passed.
func (p *proc) await(d time.Duration, n int, what string, match func(event) bool) error {
	limit := time.NewTimer(d)
	defer limit.Stop()
	for {
		p.mu.Lock()
		news := p.news
		p.mu.Unlock()
		have := len(p.find(match))
		if have >= n {
			return nil
		}
		select {
		case <-news:
		case <-p.ended:
			if have = len(p.find(match)); have >= n {
				return nil
			}
			return fmt.Errorf("rank %d: %w (%v) with %d of %d: %s\n%s", p.rank, errEnded, p.err, have, n, what, p.complaints())
		case <-limit.C:
			return fmt.Errorf("rank %d: %d of %d within %v: %s: %v\n%s", p.rank, have, n, d, what, p.find(match), p.complaints())
		}
	}
}

// complaints returns both ends of the rank's standard error, and the end of its reports.
func (p *proc) complaints() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stderr.String()
	if len(s) > 2000 {
		s = s[:1000] + "\n…\n" + s[len(s)-1000:]
	}
	for _, e := range p.events[max(0, len(p.events)-5):] {
		b, _ := json.Marshal(e)
		s += "\n" + string(b)
	}
	return s
}

// crashed reports whether the rank has ended by a panic, a fatal error of Go's runtime or a fault, other than
// one for which the system refused the runtime what it needs.
func (p *proc) crashed() bool {
	p.mu.Lock()
	text := p.stderr.String()
	p.mu.Unlock()
	if runtimeGaveUp(text) {
		return false
	}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		st := exit.Sys().(syscall.WaitStatus)
		if exit.ExitCode() == panicked || st.Signaled() && (st.Signal() == syscall.SIGSEGV || st.Signal() == syscall.SIGBUS) {
			return true
		}
	}
	return slices.ContainsFunc([]string{"panic: ", "fatal error: ", "SIGSEGV", "SIGBUS"}, func(crash string) bool { return strings.Contains(text, crash) })
}

// panicked is the exit code of a Go program that has panicked. Ranks exit with 1 otherwise.
const panicked = 2

func is(ev string) func(event) bool { return func(e event) bool { return e.Ev == ev } }

// decided reports whether a rank begins, or knows why not.
func decided(e event) bool { return e.Ev == "fail" || e.Ev == "ready" }

// ready waits until all ranks communicate.
func (j *job) ready(d time.Duration) error {
	for _, p := range j.procs {
		if err := p.await(d, 1, "is ready", is("ready")); err != nil {
			return err
		}
	}
	return nil
}

// finish tells the ranks to end, waits for them, and records the faults that they report,
// and those that did not end properly.
func (j *job) finish(r *round, but ...int) {
	for _, p := range j.procs {
		if !slices.Contains(but, p.rank) {
			_, _ = io.WriteString(p.in, "end\n")
		}
	}
	limit := time.NewTimer(endLimit)
	defer limit.Stop()
	for _, p := range j.procs {
		if slices.Contains(but, p.rank) {
			continue
		}
		select {
		case <-p.ended:
			if p.err != nil {
				r.fault("rank %d ended with %v\n%s", p.rank, p.err, p.complaints())
			}
		case <-limit.C:
			_ = p.cmd.Process.Signal(syscall.SIGQUIT) // prints its goroutines, for the report
			select {
			case <-p.ended:
			case <-time.After(5 * time.Second):
			}
			r.fault("rank %d did not end within %v\n%s", p.rank, endLimit, p.complaints())
			return
		}
		r.hear(p, "")
	}
}

// kill ends all processes and removes the job's remains.
func (j *job) kill() {
	for _, p := range j.procs {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
	for _, p := range j.procs {
		<-p.ended
	}
	j.srv.Close()
	for _, c := range j.groups {
		c.close()
	}
	_ = os.RemoveAll(j.dir)
}

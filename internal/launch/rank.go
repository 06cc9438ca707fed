package launch

import (
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/jobenv"
	"github.com/seed33544411/rma/internal/topo"
	"github.com/seed33544411/rma/internal/wireup"
)

// outputDelay bounds reading from the pipes after the process has ended: a grandchild that
// holds them open does not delay the end of the job for long. On a busy machine, what the
// process wrote last may take a while.
const outputDelay = DefaultGrace

// rank is one process of the job.
type rank struct {
	no    int
	place *topo.Binding // nil if the rank is not bound
	cmd   *exec.Cmd
	lines []*lineWriter
	ended bool // set by the job's loop, like the next three

	stopped bool          // by a signal, at the last check
	silent  time.Duration // time for which it has been stopped
	hung    bool          // it was recorded as hung

	mu     sync.Mutex
	reaped bool // the process id may belong to another process from now on
}

// exit describes the end of a rank.
type exit struct {
	rank   int
	code   int
	signal syscall.Signal
}

// start starts the process. With Spec.Prefix, or if the destination is not a file, its
// output passes through pipes; otherwise it writes to the file itself.
func (r *rank) start(s *Spec, path string, env []string, out *output) error {
	r.cmd = exec.Command(path, s.Args...)
	r.cmd.Args[0] = s.Path
	r.cmd.Dir, r.cmd.Env = s.Dir, env
	r.cmd.WaitDelay = outputDelay
	r.cmd.Stdout = r.writer(s, s.Stdout, out)
	r.cmd.Stderr = r.writer(s, s.Stderr, out)
	ownGroup(r.cmd)
	if r.no == 0 && s.Stdin != nil {
		// Use a pipe: a process group in the background cannot read the terminal itself.
		// The copying goroutine may outlive the job in a blocked read.
		in, err := r.cmd.StdinPipe()
		if err != nil {
			return err
		}
		if err := bound(r.place, r.cmd.Start); err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(in, s.Stdin)
			in.Close()
		}()
		return nil
	}
	return bound(r.place, r.cmd.Start)
}

func (r *rank) writer(s *Spec, to io.Writer, out *output) io.Writer {
	switch f, file := to.(*os.File); {
	case to == nil:
		return nil
	case s.Prefix:
		w := newLineWriter(out, to, r.no)
		r.lines = append(r.lines, w)
		return w
	case file:
		return f
	}
	return lockedWriter{out, to}
}

// wait returns when the process has ended and its output is forwarded. It kills the
// processes left in the group.
func (r *rank) wait(reaping func(pgid int)) exit {
	awaitExit(r.cmd.Process.Pid)
	r.signal(syscall.SIGKILL)
	r.mu.Lock()
	r.reaped = true
	r.mu.Unlock()
	reaping(r.cmd.Process.Pid)
	_ = r.cmd.Wait() // its ProcessState says more
	for _, w := range r.lines {
		w.flush()
	}
	e := exit{rank: r.no}
	if ws, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.signal, e.code = ws.Signal(), exitSignal+int(ws.Signal())
	} else {
		e.code = r.cmd.ProcessState.ExitCode()
	}
	return e
}

// signal sends sig to the rank's process group.
func (r *rank) signal(sig syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reaped {
		return
	}
	signalGroup(r.cmd.Process.Pid, sig)
}

// EnvLocalSize is the number of the job's processes on this host.
const EnvLocalSize = "RMA_LOCAL_SIZE"

const envHangTimeout = "RMA_HANG_TIMEOUT"

// jobVars are not inherited: a launcher inside a job starts a job of its own, whose ranks find
// it by RMA_RANK, and whose server is the launcher's.
var jobVars = map[string]bool{
	wireup.EnvRank: true, wireup.EnvSize: true, wireup.EnvRoot: true, wireup.EnvToken: true,
	wireup.EnvTokenFile: true, wireup.EnvJob: true, wireup.EnvLocalRank: true, EnvLocalSize: true,
	jobenv.EnvLauncher: true, jobenv.EnvServe: true,
}

// environ returns the environment of one rank: this process's without jobVars, the
// additions of the Spec, and the variables of the job.
func environ(s *Spec, job wireup.Config) []string {
	var env []string
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); !jobVars[name] {
			env = append(env, kv)
		}
	}
	if s.HangTimeout > 0 {
		env = append(env, envHangTimeout+"="+s.HangTimeout.String())
	}
	if s.Bind != nil {
		env = append(env, bindEnviron(&s.Bind[job.Rank], s.BindProgress)...)
	} else if s.N > cpu.Allowed().Len() {
		env = appendProcs(env, 1) // a second P takes the processor from other ranks
	}
	env = append(env, s.Env...)
	env = append(env, job.Environ()...)
	return append(env, EnvLocalSize+"="+strconv.Itoa(job.Size))
}

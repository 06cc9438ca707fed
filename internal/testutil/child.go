package testutil

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

const (
	childEnv   = "RMA_TEST_CHILD"
	aloneEnv   = "RMA_TEST_ALONE"
	lifelineFD = 3
)

// Child is a function that tests run in a process of its own: a new process of the test
// binary. The package's TestMain must call Main.
type Child struct{ name string }

var children = map[string]func(args []string, in *bufio.Reader, out io.Writer) error{}

// NewChild registers f under a name unique in the package; call it when initialising a
// package variable. f communicates with the test by in and out; its error is written to
// standard error and makes the exit code 1.
func NewChild(name string, f func(args []string, in *bufio.Reader, out io.Writer) error) Child {
	if _, dup := children[name]; dup {
		panic("testutil: two children called " + name)
	}
	children[name] = f
	return Child{name}
}

// runChild does not return in a process started by Start.
func runChild() {
	name, is := os.LookupEnv(childEnv)
	if !is {
		return
	}
	f := children[name]
	if f == nil {
		fmt.Fprintf(os.Stderr, "no child called %q\n", name)
		os.Exit(2)
	}
	// The test's process holds the other end of the lifeline: this process ends with it,
	// however it ends.
	go func() {
		_, _ = io.Copy(io.Discard, os.NewFile(lifelineFD, "lifeline"))
		os.Exit(3)
	}()
	if err := f(os.Args[1:], bufio.NewReader(os.Stdin), os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "child %s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Proc is a running child. Its methods are for one goroutine.
type Proc struct {
	In  io.WriteCloser // to the child's in
	Out *bufio.Reader  // from the child's out

	cmd      *exec.Cmd
	lifeline *os.File
	done     chan struct{}
	waitErr  error
}

// Start runs the child with args. It is killed when the test ends.
func (c Child) Start(tb testing.TB, args ...string) *Proc {
	tb.Helper()
	fatal := func(err error) {
		if err != nil {
			tb.Helper()
			tb.Fatalf("start child %s: %v", c.name, err)
		}
	}
	exe, err := os.Executable()
	fatal(err)
	p := &Proc{cmd: exec.Command(exe, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childEnv+"="+c.name)
	p.cmd.Stderr = os.Stderr
	r, w, err := os.Pipe()
	fatal(err)
	defer r.Close()
	p.lifeline = w
	p.cmd.ExtraFiles = []*os.File{r}
	// Pipes of the test: Wait would close those of exec while a reader uses them.
	inR, inW, err := os.Pipe()
	fatal(err)
	defer inR.Close()
	outR, outW, err := os.Pipe()
	fatal(err)
	defer outW.Close()
	p.cmd.Stdin, p.cmd.Stdout = inR, outW
	p.In, p.Out = inW, bufio.NewReader(outR)
	fatal(p.cmd.Start())
	go func() { p.waitErr = p.cmd.Wait(); close(p.done) }()
	tb.Cleanup(func() {
		p.Kill()
		_ = p.Wait(10 * time.Second)
		_, _, _ = w.Close(), inW.Close(), outR.Close()
	})
	return p
}

// Alone runs the calling test in a process of its own, with env in addition, and reports
// whether this is that process. If not, the test is over, and the caller returns at once.
// The process runs nothing else: what the test counts (descriptors, memory) or sets
// (limits) is its own.
func Alone(t *testing.T, env ...string) bool {
	t.Helper()
	if os.Getenv(aloneEnv) == t.Name() {
		return true
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatalf("run %s alone: %v", t.Name(), err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), aloneEnv+"="+t.Name()), env...)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Fatalf("run %s alone: %v\n%s", t.Name(), err, out)
	}
	return false
}

// Pid is the child's process id.
func (p *Proc) Pid() int { return p.cmd.Process.Pid }

// Kill ends the child at once (SIGKILL), as a crash would.
func (p *Proc) Kill() { _ = p.cmd.Process.Kill() }

// ErrStillRunning says that a child was still running at its deadline.
var ErrStillRunning = errors.New("child still running")

// Wait waits for the child's end and returns nil for exit code 0, an *exec.ExitError
// otherwise, or ErrStillRunning after d.
func (p *Proc) Wait(d time.Duration) error {
	tm := time.NewTimer(d)
	defer tm.Stop()
	select {
	case <-p.done:
		return p.waitErr
	case <-tm.C:
		return ErrStillRunning
	}
}

// Line reads one line of the child's out and returns it without its newline. It ends the
// test if that takes longer than d.
func (p *Proc) Line(tb testing.TB, d time.Duration) string {
	tb.Helper()
	var s string
	var err error
	Within(tb, d, "a line from the child", func() { s, err = p.Out.ReadString('\n') })
	if err != nil {
		tb.Fatalf("a line from the child: %v", err)
	}
	return s[:len(s)-1]
}

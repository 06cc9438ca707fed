//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guestSpec holds the parameters of one guest: its directory and its plan.
type guestSpec struct {
	ctl  string   // shared directory with plan.json
	plan Plan     //
	wire *os.File // end of the socket pair that joins two guests, or nil
}

// launcher makes the command line for a kind of machine.
type launcher interface {
	// command returns the process of the guest. Its console goes to ctl/console.
	command(ctx context.Context, g guestSpec) (*exec.Cmd, error)
	// cpu is the host CPU to pin the guest to, -1 for none.
	cpu(node int) int
}

// errNoResult says that a guest ended without a result.
var errNoResult = errors.New("the guest ended without a result")

// runGuests starts the guests, copies their output live, waits for all results and stops
// the machines. It leaves no process in any case. Guests wait for each other's end: the
// first to finish keeps its network up until the last is done.
func runGuests(ctx context.Context, l launcher, guests []guestSpec, stdout, stderr io.Writer) ([]Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make([]Result, len(guests))
	errs := make([]error, len(guests))
	var mu sync.Mutex
	var wg sync.WaitGroup
	allDone := make(chan struct{})
	var left sync.WaitGroup
	left.Add(len(guests))
	go func() { left.Wait(); close(allDone) }()
	for i, g := range guests {
		wg.Go(func() {
			so, se := stdout, stderr
			if len(guests) > 1 {
				po := &prefixer{w: stdout, mu: &mu, prefix: fmt.Sprintf("%d| ", i)}
				pe := &prefixer{w: stderr, mu: &mu, prefix: fmt.Sprintf("%d| ", i)}
				defer po.flush()
				defer pe.flush()
				so, se = po, pe
			}
			var once sync.Once
			done := func() { once.Do(left.Done) }
			defer done()
			results[i], errs[i] = runGuest(ctx, l, i, g, so, se, func(r Result) {
				done()
				if r.Code() != 0 { // its peer may wait for it forever
					stop := time.AfterFunc(peerGrace, cancel)
					defer stop.Stop()
				}
				select {
				case <-allDone:
				case <-ctx.Done():
				}
			})
			if errs[i] != nil {
				cancel() // the others cannot succeed alone
			}
		})
	}
	wg.Wait()
	return results, joinGuestErrors(errs, results)
}

// peerGrace bounds the time that a guest may run after its peer failed: long enough to
// detect and report the failure itself, short enough for the user.
const peerGrace = 15 * time.Second

// joinGuestErrors keeps the cause and drops its consequences.
func joinGuestErrors(errs []error, results []Result) error {
	failed := false
	for i := range errs {
		failed = failed || errs[i] == nil && results[i].Code() != 0
	}
	var out []error
	for i, err := range errs {
		if err == nil || failed && errors.Is(err, context.Canceled) {
			continue
		}
		if len(errs) > 1 {
			err = fmt.Errorf("guest %d: %w", i, err)
		}
		out = append(out, err)
	}
	return errors.Join(out...)
}

// runGuest runs one guest to its result. It calls hold with the result before it stops the
// machine.
func runGuest(ctx context.Context, l launcher, node int, g guestSpec, stdout, stderr io.Writer, hold func(Result)) (Result, error) {
	var res Result
	if err := writeJSON(filepath.Join(g.ctl, planFile), g.plan); err != nil {
		return res, err
	}
	cmd, err := l.command(ctx, g)
	if err != nil {
		return res, err
	}
	ended, err := startPinned(cmd, l.cpu(node))
	if err != nil {
		return res, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	defer func() { // wait until the whole group is gone
		killGroup(cmd.Process.Pid)
		<-ended
	}()
	out := &follower{path: filepath.Join(g.ctl, stdoutFile), w: stdout}
	errf := &follower{path: filepath.Join(g.ctl, stderrFile), w: stderr}
	defer out.close()
	defer errf.close()
	drain := func() error { return errors.Join(out.drain(), errf.drain()) }

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for gone := false; ; {
		select {
		case <-ctx.Done():
			drain()
			return res, fmt.Errorf("%w%s", context.Cause(ctx), consoleTail(g.ctl))
		case <-ended:
			gone = true
		case <-tick.C:
		}
		ok, err := readJSON(filepath.Join(g.ctl, resultFile), &res)
		// after the result, so that all output before it is copied
		if e := drain(); err == nil {
			err = e
		}
		switch {
		case err != nil:
			return res, err
		case ok && res.Error != "":
			return res, fmt.Errorf("inside the guest: %s%s", res.Error, consoleTail(g.ctl))
		case ok:
			hold(res)
			return res, nil
		case gone:
			return res, fmt.Errorf("%w%s", errNoResult, consoleTail(g.ctl))
		}
	}
}

func consoleTail(ctl string) string {
	t := tailOf(filepath.Join(ctl, "console"), 25) + tailOf(filepath.Join(ctl, "machine.log"), 10)
	if t == "" {
		return ""
	}
	return "\n" + strings.TrimRight(t, "\n")
}

// ownGroup puts a process into a group of its own and makes the kernel kill it when this
// process dies, for any reason; cancelling its context kills the group.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { killGroup(cmd.Process.Pid); return nil }
}

func killGroup(pid int) { _ = unix.Kill(-pid, unix.SIGKILL) }

// startPinned starts cmd in its own group on one CPU (-1: any) and returns a channel that
// is closed when cmd has ended and been reaped. The thread that starts it lives as long as
// it does: both the CPU mask and the death signal belong to the starting thread.
func startPinned(cmd *exec.Cmd, cpu int) (<-chan struct{}, error) {
	ownGroup(cmd)
	started := make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // not unlocked: a thread with a narrowed mask must not be reused
		if cpu >= 0 {
			var set unix.CPUSet
			set.Set(cpu)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				started <- fmt.Errorf("pin to CPU %d: %w", cpu, err)
				return
			}
		}
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its result file has the outcome
		}
	}()
	return ended, <-started
}

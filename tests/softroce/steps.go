//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// openOutputs creates the output files that programs inside write and the host follows.
func openOutputs(ctl string) (stdout, stderr *os.File, err error) {
	const mode = os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if stdout, err = os.OpenFile(filepath.Join(ctl, stdoutFile), mode, 0o644); err != nil {
		return nil, nil, err
	}
	stderr, err = os.OpenFile(filepath.Join(ctl, stderrFile), mode, 0o644)
	return stdout, stderr, err
}

// pushOut writes the data of f to the file system below, without asking that one to sync:
// hostfs does not write it by itself.
func pushOut(f *os.File) error {
	const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	err := unix.SyncFileRange(int(f.Fd()), 0, 0, all)
	if errors.Is(err, unix.ESPIPE) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

// keepPushing pushes outputs periodically so that they appear live; only after writes, so
// that it does not disturb a silent measurement.
func keepPushing(files ...*os.File) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		sizes := make([]int64, len(files))
		t := time.NewTicker(200 * time.Millisecond)
		defer t.Stop()
		for last := false; !last; {
			select {
			case <-quit:
				last = true
			case <-t.C:
			}
			for i, f := range files {
				if st, err := f.Stat(); err == nil && st.Size() != sizes[i] {
					sizes[i] = st.Size()
					_ = pushOut(f)
				}
			}
		}
	}()
	return func() { close(quit); <-done }
}

// runSteps runs the plan's steps one after another. It calls after behind each, to remove
// what the step left.
func runSteps(ctx context.Context, plan Plan, topo *topology, stdout, stderr *os.File, after func()) ([]StepResult, error) {
	var out []StepResult
	netem := ""
	for i, s := range plan.Steps {
		want := plan.Netem
		if s.Netem != "" {
			want = s.Netem
		}
		if want != netem {
			if err := topo.shape(want); err != nil {
				return out, err
			}
			netem = want
		}
		if len(s.Rates) > 0 {
			if err := topo.limit(s.Rates); err != nil {
				return out, err
			}
		}
		if s.Name != "" {
			fmt.Fprintf(stdout, "--- %s\n", s.Name)
			for _, n := range s.Notes {
				fmt.Fprintf(stdout, "    %s\n", n)
			}
		}
		start, wire := time.Now(), topo.crossed()
		code, err := runStep(ctx, plan, s, topo, stdout, stderr)
		if err != nil {
			return out, err
		}
		took := time.Since(start)
		out = append(out, StepResult{Name: s.Name, Code: code, Seconds: took.Seconds(), Wire: topo.crossed() - wire})
		if s.Name != "" {
			fmt.Fprintf(stdout, "--- %s: %s (%.1f s)\n", s.Name, codeText(code), took.Seconds())
		}
		if after != nil && i < len(plan.Steps)-1 { // behind the last one the machine ends
			after()
		}
	}
	return out, nil
}

func codeText(code int) string {
	switch {
	case code == 0:
		return "ok"
	case code == timedOutCode:
		return "TIMED OUT"
	case code > 128:
		return fmt.Sprintf("KILLED by %v", syscall.Signal(code-128))
	}
	return fmt.Sprintf("FAILED, exit code %d", code)
}

// runStep runs one program and returns its exit code. A program that cannot be started is
// that step's failure (126, 127, as in a shell), reported on stderr.
func runStep(ctx context.Context, plan Plan, s Step, topo *topology, stdout, stderr *os.File) (int, error) {
	env := append(baseEnv(), topo.env(plan)...)
	env = append(env, plan.Env...)
	env = append(env, s.Env...)
	dir := plan.Dir
	if s.Dir != "" {
		dir = s.Dir
	}
	path, err := lookIn(env, dir, s.Argv[0])
	if err != nil {
		fmt.Fprintf(stderr, "softroce: %v\n", err)
		return 127, nil
	}
	cmd := &exec.Cmd{
		Path: path, Args: s.Argv, Dir: dir, Env: env,
		Stdout: stdout, Stderr: stderr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(stderr, "softroce: start %s: %v\n", path, err)
		return 126, nil
	}
	stop := context.AfterFunc(ctx, func() { killGroup(cmd.Process.Pid) })
	defer stop()
	timedOut := make(chan struct{})
	if s.Timeout > 0 {
		// a Go program prints all its stacks on SIGQUIT
		quit := time.AfterFunc(s.Timeout, func() {
			close(timedOut)
			_ = unix.Kill(-cmd.Process.Pid, unix.SIGQUIT)
		})
		kill := time.AfterFunc(s.Timeout+3*time.Second, func() { killGroup(cmd.Process.Pid) })
		defer quit.Stop()
		defer kill.Stop()
	}
	_ = cmd.Wait()
	killGroup(cmd.Process.Pid)
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	select {
	case <-timedOut:
		fmt.Fprintf(stderr, "softroce: no end after %v\n", s.Timeout)
		return timedOutCode, nil
	default:
	}
	ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok {
		return 0, fmt.Errorf("step %s: no wait status", s.Argv[0])
	}
	if ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return ws.ExitStatus(), nil
}

// baseEnv is the initial environment of every program inside.
func baseEnv() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin",
		"HOME=" + guestHome, "TMPDIR=/tmp", "TERM=dumb", "LANG=C.UTF-8",
	}
}

// lookIn finds a program like a shell in dir with env's PATH.
func lookIn(env []string, dir, name string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		if _, err := os.Stat(name); err != nil {
			return "", err
		}
		return name, nil
	}
	path := ""
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
	}
	for _, d := range filepath.SplitList(path) {
		p := filepath.Join(d, name)
		if st, err := os.Stat(p); err == nil && !st.IsDir() && st.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s: not found in %s", name, path)
}

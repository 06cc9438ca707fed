//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// halt is a way to keep a process from running.
type halt struct {
	name string
	// apply returns when the process is halted. resume, which is never nil and may be called
	// again, resumes it.
	apply func(p *proc) (resume func(), err error)
}

var halts = []halt{
	{"SIGSTOP", stopSignal},
	{"freezer, version 1", func(p *proc) (func(), error) { return freeze(p, false) }},
	{"freezer, version 2", func(p *proc) (func(), error) { return freeze(p, true) }},
}

// someHalt applies a random way of halting that this machine permits; it records the
// refused ones, and falls back to SIGSTOP.
func someHalt(r *round, p *proc) (resume func()) {
	h := pick(r, halts...)
	resume, err := h.apply(p)
	if err != nil {
		r.leaveOut(fmt.Errorf("%s: %w", h.name, err))
		h = halts[0]
		resume, _ = h.apply(p)
	}
	r.count("by "+h.name, 1)
	return resume
}

func stopSignal(p *proc) (func(), error) {
	p.signal(syscall.SIGSTOP)
	return func() { p.signal(syscall.SIGCONT) }, nil
}

func freeze(p *proc, v2 bool) (resume func(), err error) {
	c, err := newCgroup("freezer", v2)
	if err != nil {
		return nil, err
	}
	p.job.groups = append(p.job.groups, c) // it can be removed when the process has ended
	if err := c.add(p.cmd.Process.Pid); err != nil {
		return nil, err
	}
	if err := c.freeze(); err != nil {
		c.thaw()
		return nil, err
	}
	return c.thaw, nil
}

// starve gives the process only the time that no other process uses, on processors that are
// never idle, until the returned function is called.
func starve(p *proc) (feed func(), err error) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.cmd.Process.Pid))
	if err != nil {
		return nil, err
	}
	idle := func(policy uint32) (err error) {
		for _, t := range tasks { // later threads inherit it
			tid, _ := strconv.Atoi(t.Name())
			if e := unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy}, 0); e != nil && e != unix.ESRCH {
				err = fmt.Errorf("sched_setattr: %w", e)
			}
		}
		return err
	}
	if err := idle(unix.SCHED_IDLE); err != nil {
		return nil, err
	}
	var busy []*exec.Cmd
	for range 2 * runtime.NumCPU() {
		c := exec.Command("sh", "-c", "while :; do :; done")
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if c.Start() == nil {
			busy = append(busy, c)
		}
	}
	return sync.OnceFunc(func() {
		for _, c := range busy {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
		tasks, _ = os.ReadDir(fmt.Sprintf("/proc/%d/task", p.cmd.Process.Pid))
		_ = idle(unix.SCHED_NORMAL)
	}), nil
}

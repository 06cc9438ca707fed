//go:build unix

package main

import (
	"os/exec"
	"syscall"
	"time"
)

// graceTime is how long a process group may take to end after SIGQUIT: a test binary
// writes its goroutines' stacks meanwhile.
const graceTime = 10 * time.Second

// leadGroup makes cmd the leader of a process group. When cmd's context ends, the group
// gets SIGQUIT and, after graceTime, SIGKILL. The caller calls the function that it
// returns when it has waited for cmd: what is left of the group is killed.
func leadGroup(cmd *exec.Cmd) (sweep func()) {
	kill := func(sig syscall.Signal) error { return syscall.Kill(-cmd.Process.Pid, sig) }
	var late *time.Timer
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		late = time.AfterFunc(graceTime, func() { _ = kill(syscall.SIGKILL) })
		return kill(syscall.SIGQUIT)
	}
	return func() {
		if late != nil {
			late.Stop()
		}
		_ = kill(syscall.SIGKILL)
	}
}

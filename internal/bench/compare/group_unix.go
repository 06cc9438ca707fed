//go:build unix

package compare

import (
	"os/exec"
	"syscall"
)

// lead makes c the leader of a process group, which is asked to end when c's context
// ends.
func lead(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
}

// sweep kills the rest of the group after its leader has been waited for. The group ID is
// valid as long as the group has members, and without members it was freed too recently to
// be in use again.
func sweep(c *exec.Cmd) { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }

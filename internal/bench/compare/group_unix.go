//go:build unix

package compare

import (
	"os/exec"
	"syscall"
)

// lead makes c the leader of a process group, which is asked to end with c's
// context.
func lead(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
}

// sweep ends what is left of the group once its leader has been waited for: the
// number is the group's as long as it has members, and free so recently otherwise
// that nobody else has it.
func sweep(c *exec.Cmd) { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }

//go:build unix && !linux

package launch

import (
	"os/exec"
	"syscall"
)

func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// awaitExit has no portable counterpart: the group is signalled after reaping.
func awaitExit(int) {}

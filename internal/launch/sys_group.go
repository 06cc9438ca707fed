//go:build unix && !linux

package launch

import (
	"os/exec"
	"syscall"
)

func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// groupStates has no portable counterpart: only peers detect hung ranks.
func groupStates() map[int][]byte { return nil }

// awaitExit has no portable counterpart: the group is signalled after reaping.
func awaitExit(int) {}

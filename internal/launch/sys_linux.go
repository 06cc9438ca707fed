package launch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroup makes the process the leader of a process group, and the kernel kill it when the
// thread that has started it ends: the starting goroutine stays locked to its thread as
// long as the job lasts.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// groupStates returns the states of all processes, one letter each as in proc(5), by
// process group.
func groupStates() map[int][]byte {
	states := map[int][]byte{}
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, d := range dirs {
		if d.Name()[0] < '0' || d.Name()[0] > '9' {
			continue
		}
		stat, err := os.ReadFile("/proc/" + d.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		var state byte
		var parent, group int
		rest := stat[bytes.LastIndexByte(stat, ')')+1:] // a name may have any bytes
		if _, err := fmt.Sscanf(string(rest), " %c %d %d", &state, &parent, &group); err == nil {
			states[group] = append(states[group], state)
		}
	}
	return states
}

// awaitExit returns when the process has ended, without reaping it: no other process or
// group can get its id before cmd.Wait.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

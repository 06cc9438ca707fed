//go:build unix

package launch

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// forwarded are the signals that Run passes on to the ranks.
var forwarded = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

const sigCont = syscall.SIGCONT

func signalName(s syscall.Signal) string { return unix.SignalName(s) }

func signalGroup(pgid int, s syscall.Signal) { _ = syscall.Kill(-pgid, s) }

func ownSession(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// supported returns why Run cannot work on this system.
func supported() error { return nil }

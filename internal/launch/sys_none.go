//go:build !unix

package launch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// supported returns why Run cannot work on this system: there are no process groups to end
// a job by. The rest of this file is never called.
func supported() error {
	return fmt.Errorf("launch: start ranks on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

var forwarded []os.Signal

const sigCont = syscall.Signal(0)

func signalName(s syscall.Signal) string { return s.String() }

func signalGroup(int, syscall.Signal) {}

func ownGroup(*exec.Cmd) {}

func ownSession(*exec.Cmd) {}

func awaitExit(int) {}

func groupStates() map[int][]byte { return nil }

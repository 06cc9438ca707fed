package launch

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// Exit codes beside those of the ranks, as in shells and timeout(1).
const (
	ExitUsage    = 2
	ExitTimeout  = 124
	ExitHung     = 125
	ExitNotExec  = 126
	ExitNotFound = 127
	exitSignal   = 128 // + the signal's number
)

// ErrSpec says that a Spec is invalid.
var ErrSpec = errors.New("launch: bad specification")

// RankError reports the first rank that failed.
type RankError struct {
	Rank   int
	Pid    int
	Code   int            // exit code; 128 + signal if it was killed
	Signal syscall.Signal // 0 if it exited
}

func (e *RankError) Error() string {
	if e.Signal != 0 {
		return fmt.Sprintf("rank %d (pid %d) was killed by %s (%s)", e.Rank, e.Pid, signalName(e.Signal), e.Signal)
	}
	return fmt.Sprintf("rank %d (pid %d) exited with code %d", e.Rank, e.Pid, e.Code)
}

// TimeoutError says that the job took longer than Spec.Timeout.
type TimeoutError struct {
	Limit   time.Duration
	Running []int // ranks that were still running
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("the job did not end within %v: ranks %v still running", e.Limit, e.Running)
}

// OutputError says that the output of the ranks, which passes through this process, could not be
// written.
type OutputError struct{ Err error }

func (e *OutputError) Error() string {
	return fmt.Sprintf("the output of the ranks is lost: %v", e.Err)
}

// Unwrap returns the cause.
func (e *OutputError) Unwrap() error { return e.Err }

var errUnread = errors.New("nobody reads it")

// StartError says that a rank's process could not be started.
type StartError struct {
	Rank int
	Path string
	Err  error
}

func (e *StartError) Error() string {
	return fmt.Sprintf("start rank %d: %s: %v", e.Rank, e.Path, e.Err)
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

func (e *StartError) exitCode() int {
	if errors.Is(e.Err, exec.ErrNotFound) || errors.Is(e.Err, syscall.ENOENT) {
		return ExitNotFound
	}
	return ExitNotExec
}

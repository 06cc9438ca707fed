//go:build unix

package testutil

import (
	"os"
	"os/signal"
	"testing"

	"golang.org/x/sys/unix"
)

// Stop stops the child (SIGSTOP) and returns when none of its threads runs any more: after
// the signal alone, they may run on for a while.
func (p *Proc) Stop(tb testing.TB) {
	tb.Helper()
	if err := p.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		tb.Fatalf("stop the child: %v", err)
	}
	var status unix.WaitStatus
	for {
		switch _, err := unix.Wait4(p.Pid(), &status, unix.WUNTRACED, nil); {
		case err == unix.EINTR:
		case err != nil || !status.Stopped():
			tb.Fatalf("stop the child: it has ended (%v)", err)
		default:
			return
		}
	}
}

// Continue lets a stopped child run (SIGCONT); it does nothing to one that has ended.
func (p *Proc) Continue() { _ = p.cmd.Process.Signal(unix.SIGCONT) }

// UnignoreSignals lets commands of the tests start with the default actions of SIGHUP and
// SIGINT, also if the tests run under nohup or in the background of a script.
func UnignoreSignals() {
	for _, sig := range []os.Signal{unix.SIGHUP, unix.SIGINT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig) // commands do not inherit the handler
		}
	}
}

// Package event is what a goroutine of this process sleeps on when it has to
// wait for a link: an [Event] is a descriptor that is readable while it is set,
// a [Set] waits for any of several descriptors, [Wait] for one.
//
// Linux has eventfd and epoll for that; other unixes a pipe and poll. Elsewhere
// New and NewSet return an error that wraps errors.ErrUnsupported.
//
// Event.Set may be called by any goroutine; the rest is for one at a time.
// Nothing but New, NewSet and Close allocates.
//
//	event_linux.go   Event and Set by eventfd and epoll
//	event_unix.go    Event and Set of other unixes
//	poll.go          the pipe and poll behind them, tested on Linux as well; Wait
//	event_none.go    systems without either
//
// It imports nothing of the project.
package event

import "time"

// millis rounds d up to milliseconds, so that a wait is not cut short to a spin.
func millis(d time.Duration) int {
	return int((max(d, 0) + time.Millisecond - 1) / time.Millisecond)
}

// Package event provides descriptors on which a goroutine sleeps while it waits for a link:
// an [Event] is a descriptor that is readable while it is set, a [Set] waits for any of
// several descriptors, [Wait] for one.
//
// Linux uses eventfd and epoll; other unixes a pipe and poll. On other systems New and
// NewSet return an error that wraps errors.ErrUnsupported.
//
// Event.Set may be called by any goroutine; the other methods by one at a time. Only New,
// NewSet and Close allocate.
//
//	event_linux.go   Event and Set by eventfd and epoll
//	event_unix.go    Event and Set of other unixes
//	poll.go          the pipe and poll behind them, tested on Linux as well; Wait
//	event_none.go    systems without either
//
// It imports nothing of the project.
package event

import "time"

// millis rounds d up to milliseconds, because a wait rounded down to 0 would spin.
func millis(d time.Duration) int {
	return int((max(d, 0) + time.Millisecond - 1) / time.Millisecond)
}

// Package event provides descriptors on which a goroutine sleeps while it waits for a link:
// an [Event] is a descriptor that is readable while it is set, a [Set] waits for any of
// several descriptors, [Wait] for one.
//
// Linux uses eventfd and ppoll; other unixes a pipe and poll. On other systems New and
// NewSet return an error that wraps errors.ErrUnsupported.
//
// Event.Set may be called by any goroutine; the other methods by one at a time. Only New,
// NewSet and Close allocate.
//
//	event_linux.go   Event by eventfd, ppoll
//	event_unix.go    Event of other unixes, poll
//	poll.go          Set and Wait by poll; the pipe, tested on Linux as well
//	raw_unsafe.go    a wait of Set that keeps its P, on Linux
//	event_none.go    systems without either
//
// It imports nothing of the project.
package event

package verbs

import "syscall"

// AsyncEvent is something that happened to a device, outside of any completion.
type AsyncEvent struct {
	Type EventType
	QPN  uint32 // number of the queue pair, for events of queue pairs
	Port int    // for events of ports
	ID   uint64 // ID of the CQ or SRQ, for their events
}

// Fatal reports whether the event means that the object no longer works.
func (e AsyncEvent) Fatal() bool {
	switch e.Type {
	case EventCQErr, EventQPFatal, EventQPReqErr, EventQPAccessErr, EventPathMigErr, EventDeviceFatal,
		EventSRQErr, EventWQFatal:
		return true
	}
	return false
}

// AsyncEvent takes the next asynchronous event and acknowledges it. It never
// blocks: ok is false when there is none; see [Context.AsyncFD].
func (c *Context) AsyncEvent() (e AsyncEvent, ok bool, err error) {
	const op = "get asynchronous event"
	h, err := c.use(op)
	if err != nil {
		return e, false, err
	}
	e, no := rawAsyncEvent(h)
	if no == syscall.EAGAIN || no == syscall.EINTR {
		return AsyncEvent{}, false, nil
	}
	return e, no == 0, fail(op, no, "")
}

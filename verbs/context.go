package verbs

import (
	"fmt"
	"sync/atomic"
	"syscall"
)

// Context is an opened device. See the package comment for the objects created from it and
// the order of closing. Their constructors are in their own files.
type Context struct {
	name string
	h    uintptr
	fd   int
	ids  atomic.Uint64 // completion and shared receive queues; 0 is never used
}

// Open opens the device of that name. The empty name opens the only device of the host; it
// is refused if there are several.
func Open(name string) (*Context, error) {
	op := "open RDMA device"
	if name != "" {
		op += " " + name
	}
	if err := load(op); err != nil {
		return nil, err
	}
	if name == "" {
		ds, err := Devices()
		switch {
		case err != nil:
			return nil, err
		case len(ds) == 0:
			return nil, fmt.Errorf("%s: %w: this host has none", op, ErrNoDevice)
		case len(ds) > 1:
			return nil, fmt.Errorf("%s: %w: %d devices, name one (the first is %s)", op, ErrInvalid, len(ds), ds[0].Name)
		}
		name = ds[0].Name
	}
	h, fd, no := rawOpen(name)
	switch no {
	case 0:
		return &Context{name: name, h: h, fd: fd}, nil
	case syscall.ENODEV, syscall.ENOSYS:
		return nil, fmt.Errorf("%s: %w", op, ErrNoDevice)
	case syscall.EACCES, syscall.EPERM:
		return nil, fail(op, no, "no permission on /dev/infiniband/uverbs*: add the user to the rdma group")
	}
	return nil, fail(op, no, "is the provider library installed (ibverbs-providers) and /dev/infiniband present?")
}

// Name returns the name of the device.
func (c *Context) Name() string { return c.name }

// Close closes the device.
func (c *Context) Close() error {
	if c.h == 0 {
		return nil
	}
	if no := rawClose(c.h); no != 0 {
		return closeFail("close RDMA device "+c.name, no)
	}
	c.h, c.fd = 0, -1
	return nil
}

// use returns the handle, or the error that c is closed.
func (c *Context) use(op string) (uintptr, error) {
	if c.h == 0 {
		return 0, fmt.Errorf("%s: RDMA device %s: %w", op, c.name, ErrClosed)
	}
	return c.h, nil
}

// QueryDevice returns the device's attributes.
func (c *Context) QueryDevice() (DeviceAttr, error) {
	const op = "query device"
	h, err := c.use(op)
	if err != nil {
		return DeviceAttr{}, err
	}
	a, no := rawQueryDevice(h)
	return a, fail(op+" "+c.name, no, "")
}

// QueryPort returns the state of a port. Ports count from 1.
func (c *Context) QueryPort(port int) (PortAttr, error) {
	op := fmt.Sprintf("query port %d of %s", port, c.name)
	h, err := c.use(op)
	if err != nil {
		return PortAttr{}, err
	}
	if port < 1 || port > 255 {
		return PortAttr{}, fmt.Errorf("%s: %w: ports count from 1", op, ErrInvalid)
	}
	a, no := rawQueryPort(h, uint8(port))
	return a, fail(op, no, "")
}

// PKey returns entry index of the partition key table of a port.
func (c *Context) PKey(port, index int) (uint16, error) {
	op := fmt.Sprintf("query P_Key %d of port %d of %s", index, port, c.name)
	h, err := c.use(op)
	if err != nil {
		return 0, err
	}
	if port < 1 || port > 255 || index < 0 {
		return 0, fmt.Errorf("%s: %w", op, ErrInvalid)
	}
	k, no := rawQueryPKey(h, uint8(port), index)
	return k, fail(op, no, "")
}

// AsyncFD returns a non-blocking descriptor that is readable while [Context.AsyncEvent] has
// an event. It belongs to the context.
func (c *Context) AsyncFD() int { return c.fd }

// AsyncEvent is an event of a device other than a completion.
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

// AsyncEvent takes the next asynchronous event and acknowledges it. It never blocks: ok is
// false when there is none; see [Context.AsyncFD].
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

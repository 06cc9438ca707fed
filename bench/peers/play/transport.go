package play

import "context"

// Transport is the library that is measured.
type Transport interface {
	// Name is the name of the library in results.
	Name() string

	// Module is the path of the library's module, "" if it is Go's own.
	Module() string

	// Nets are the kinds of connection it can use; the first is the default.
	Nets() []string

	// How returns, in a few words, which interface of the library is used for a plan.
	How(p *Plan) string

	// Pins reports whether the library runs a plan faster if each side is pinned to its
	// own processor, in case the user has named one.
	Pins(p *Plan) bool

	// Listen prepares the server's side.
	Listen(ctx context.Context, p *Plan) (Listener, error)

	// Dial connects the client to the address that Listen returned.
	Dial(ctx context.Context, p *Plan, addr string) (Conn, error)
}

// Listener is the server's side of a transport before its client has connected. It ends
// with the context of Listen.
type Listener interface {
	Addr() string
	Accept() (Conn, error)
	Close() error
}

// Conn carries messages between two sides in order, one goroutine on each side. All
// methods of a Conn that is closed, or whose context has ended, return errors.
type Conn interface {
	// Send posts a message. msg stays unchanged for the rest of the run, so
	// that a library may refer to it instead of copying it.
	Send(msg []byte) error

	// Flush returns when all messages are in flight.
	Flush() error

	// Recv waits for a message of len(into) bytes and returns it: in into, or, of a
	// library that lends the memory in which it arrived, there until the next Recv.
	Recv(into []byte) ([]byte, error)

	Close() error
}

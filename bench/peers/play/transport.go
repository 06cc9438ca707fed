package play

import "context"

// Transport is the library that is measured.
type Transport interface {
	// Name is what the library is called in results.
	Name() string

	// Module is the path of the library's module, "" if it is Go's own.
	Module() string

	// Nets are the kinds of connection it can use; the first is the default.
	Nets() []string

	// How says in a few words which of its ways it uses for a plan.
	How(p *Plan) string

	// Pins says whether the library is faster at a plan where each side keeps to a
	// processor of its own, if the user has named one.
	Pins(p *Plan) bool

	// Listen makes the server's side ready.
	Listen(ctx context.Context, p *Plan) (Listener, error)

	// Dial connects the client with what Listen said.
	Dial(ctx context.Context, p *Plan, addr string) (Conn, error)
}

// Listener is the server's side of a transport before its client came. All of it
// ends with the context of Listen.
type Listener interface {
	Addr() string
	Accept() (Conn, error)
	Close() error
}

// Conn carries messages between two sides in order, one goroutine a side. A closed
// Conn, or one whose context has ended, returns errors from everything.
type Conn interface {
	// Send hands a message over. msg stays unchanged for the rest of the run, so
	// that a library may refer to it instead of copying it.
	Send(msg []byte) error

	// Flush returns when all messages are on their way.
	Flush() error

	// Recv waits for a message of len(into) bytes and returns it: in into, or, of a
	// library that lends the memory in which it arrived, there until the next Recv.
	Recv(into []byte) ([]byte, error)

	Close() error
}

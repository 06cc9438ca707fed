package play

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
)

// ErrGone says that the other side ended before the measurement.
var ErrGone = errors.New("the other side has gone")

// ErrControl says that a line from the other side is malformed.
var ErrControl = errors.New("bad control message")

// maxLine bounds a control message.
const maxLine = 4 << 10

// welcome is the server's answer to a plan.
type welcome struct {
	Addr  string `json:"addr,omitempty"`  // where the transport listens
	Error string `json:"error,omitempty"` // or why it does not
}

// control is the connection over which the two sides meet. It stays open, so that
// each side notices when the other dies.
type control struct {
	net.Conn
	r    *bufio.Reader
	gone chan struct{} // closed when the other side has gone
}

func newControl(ctx context.Context, c net.Conn) *control {
	context.AfterFunc(ctx, func() { c.Close() })
	return &control{c, bufio.NewReaderSize(c, maxLine), make(chan struct{})}
}

func (c *control) tell(v any) error { return json.NewEncoder(c).Encode(v) }

func (c *control) hear(v any) error {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("%w: %w", ErrControl, err)
	}
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("%w: %w", ErrControl, err)
	}
	return nil
}

// watch returns a context that ends when the other side ends. Nothing more is read from
// the connection.
func (c *control) watch(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, c.r)
		cancel(ErrGone)
		close(c.gone)
	}()
	return ctx
}

// Serve waits on l for a client, calls prepare with its plan, and runs the plan with it. It
// ends when the client or ctx has ended.
func Serve(ctx context.Context, t Transport, l net.Listener, prepare func(*Plan) error) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	raw, err := l.Accept()
	stop()
	if err = errors.Join(because(ctx, err), l.Close()); err != nil {
		return err
	}
	defer raw.Close()
	c := newControl(ctx, raw)
	var p Plan
	if err := c.hear(&p); err != nil {
		return because(ctx, err)
	}
	err = p.Check(t)
	if err == nil {
		err = prepare(&p)
	}
	if err != nil {
		return errors.Join(err, c.tell(welcome{Error: err.Error()}))
	}
	ctx = c.watch(ctx)
	data, err := t.Listen(ctx, &p)
	if err != nil {
		return errors.Join(err, c.tell(welcome{Error: err.Error()}))
	}
	defer func() { err = firstOf(err, closed(data.Close())) }()
	if err := c.tell(welcome{Addr: data.Addr()}); err != nil {
		return because(ctx, err)
	}
	conn, err := data.Accept()
	if err != nil {
		return because(ctx, err)
	}
	defer func() { err = firstOf(err, closed(conn.Close())) }()
	if err := Server(&p, conn); err != nil {
		return because(ctx, err)
	}
	<-c.gone // it has heard that everything arrived, or the run has ended
	return nil
}

// Run runs the plan with the server at addr.
func Run(ctx context.Context, t Transport, p *Plan, addr string) (res Result, err error) {
	if err := p.Check(t); err != nil {
		return res, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return res, because(ctx, err)
	}
	defer raw.Close()
	c := newControl(ctx, raw)
	if err := c.tell(p); err != nil {
		return res, because(ctx, err)
	}
	var w welcome
	switch err := c.hear(&w); {
	case err != nil:
		return res, because(ctx, err)
	case w.Error != "":
		return res, fmt.Errorf("%w: server: %s", ErrPlan, w.Error)
	}
	ctx = c.watch(ctx)
	conn, err := t.Dial(ctx, p, w.Addr)
	if err != nil {
		return res, because(ctx, err)
	}
	defer func() { err = firstOf(err, closed(conn.Close())) }()
	res, err = Client(t, p, conn)
	return res, because(ctx, err)
}

// because returns the cause of ctx if its end caused err, otherwise err.
func because(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// closed returns err, or nil if it says that something was closed already: the end of a
// context closes it as well.
func closed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

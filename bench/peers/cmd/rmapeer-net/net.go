package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"

	"github.com/seed33544411/rma/bench/peers/play"
)

// transport is package net.
type transport struct{}

func (transport) Name() string   { return "net" }
func (transport) Module() string { return "" }
func (transport) Nets() []string { return []string{"tcp", "unix"} }

func (transport) How(p *play.Plan) string {
	if p.Batch > 1 && !p.Latency() {
		return fmt.Sprintf("one write for %d messages, buffered reader", p.Batch)
	}
	return "one write a message, buffered reader"
}

// Pins: it makes no difference, see docs/perf.md.
func (transport) Pins(*play.Plan) bool { return false }

// bufferSize is the size of the buffers of readers, and of writers if messages are batched.
// Larger messages bypass both.
const bufferSize = 64 << 10

func (transport) Listen(ctx context.Context, p *play.Plan) (play.Listener, error) {
	l, err := play.ListenLocal(ctx, p.Net)
	if err != nil {
		return nil, err
	}
	return &listener{l, ctx, p}, nil
}

type listener struct {
	net.Listener
	ctx context.Context
	p   *play.Plan
}

func (l *listener) Addr() string { return l.Listener.Addr().String() }

func (l *listener) Accept() (play.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newConn(l.ctx, l.p, c)
}

func (transport) Dial(ctx context.Context, p *play.Plan, addr string) (play.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, p.Net, addr)
	if err != nil {
		return nil, err
	}
	return newConn(ctx, p, c)
}

// conn is either side. w is the connection itself if each message is written by its
// own call.
type conn struct {
	net.Conn
	r *bufio.Reader
	w io.Writer
	b *bufio.Writer // w, or nil
}

func newConn(ctx context.Context, p *play.Plan, c net.Conn) (play.Conn, error) {
	if t, ok := c.(*net.TCPConn); ok {
		if err := t.SetNoDelay(true); err != nil {
			return nil, err
		}
	}
	context.AfterFunc(ctx, func() { c.Close() })
	out := &conn{Conn: c, r: bufio.NewReaderSize(c, bufferSize), w: c}
	if p.Batch > 1 && !p.Latency() {
		out.b = bufio.NewWriterSize(c, bufferSize)
		out.w = out.b
	}
	return out, nil
}

func (c *conn) Send(msg []byte) error {
	_, err := c.w.Write(msg)
	return err
}

func (c *conn) Flush() error {
	if c.b == nil {
		return nil
	}
	return c.b.Flush()
}

func (c *conn) Recv(into []byte) ([]byte, error) {
	_, err := io.ReadFull(c.r, into)
	return into, err
}

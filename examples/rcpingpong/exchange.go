package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// done is what the client says last, with C's zero byte at the end.
var done = []byte("done\x00")

// exchange swaps addresses with the peer over c. ready is called with the
// peer's address as soon as it is known: the server must be able to receive
// before the client learns its address and starts to send.
func exchange(ctx context.Context, c net.Conn, server bool, mine dest, ready func(dest) error) error {
	// Whatever ends ctx ends a read or write that is under way. A deadline of the connection at the
	// time of ctx's could end it before ctx.Err says why.
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()

	send := func() error {
		_, err := c.Write(mine.Append(nil))
		return wrap(ctx, "send my address", err)
	}
	receive := func() error {
		b := make([]byte, destSize)
		if _, err := io.ReadFull(c, b); err != nil {
			return wrap(ctx, "receive the peer's address", err)
		}
		d, err := parseDest(b)
		if err != nil {
			return err
		}
		return ready(d)
	}
	if server {
		if err := receive(); err != nil {
			return err
		}
		if err := send(); err != nil {
			return err
		}
		// The client says "done" once it has our address; some close at once.
		b := make([]byte, len(done))
		if _, err := io.ReadFull(c, b); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return wrap(ctx, "wait for the client to be done", err)
		}
		return nil
	}
	if err := send(); err != nil {
		return err
	}
	if err := receive(); err != nil {
		return err
	}
	_, err := c.Write(done)
	return wrap(ctx, "say done", err)
}

func wrap(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return fmt.Errorf("%s: %w", op, err)
}

// accept waits for one client on the port.
func accept(ctx context.Context, port int) (net.Conn, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	c, err := l.Accept()
	return c, wrap(ctx, fmt.Sprintf("wait for a client on port %d", port), err)
}

// dial connects to the server, which may still be starting: refused
// connections are tried again until ctx ends.
func dial(ctx context.Context, host string, port int) (net.Conn, error) {
	addr := net.JoinHostPort(host, fmt.Sprint(port))
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err == nil {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to %s: %w: last try: %w; is the server running there?", addr, context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// meet finds the peer, swaps addresses with it and connects the queue pair.
func (p *pingPong) meet(ctx context.Context, host string, w io.Writer) error {
	var c net.Conn
	var err error
	if host == "" {
		c, err = accept(ctx, p.o.port)
	} else {
		c, err = dial(ctx, host, p.o.port)
	}
	if err != nil {
		return err
	}
	defer c.Close()
	return exchange(ctx, c, host == "", p.dest(), func(d dest) error {
		fmt.Fprintf(w, "  remote address: %v\n", d)
		return p.connect(d)
	})
}

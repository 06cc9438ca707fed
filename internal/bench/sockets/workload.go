package sockets

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
)

// Dial connects to the server of a workload.
type Dial func(ctx context.Context) (net.Conn, error)

// Workload is a server and its client.
type Workload struct {
	Name  string
	Bytes int // of an operation that streams

	// Serve serves connections of l until l is closed.
	Serve func(l net.Listener) error

	// Dial returns a client with connections for conns goroutines.
	Dial func(ctx context.Context, dial Dial, conns int) (Client, error)
}

// Client makes operations.
type Client interface {
	// Op makes one operation on connection i, for one goroutine at a time.
	Op(i int) error

	// Finish returns when the server has done all operations.
	Finish() error

	// Close closes the connections.
	Close() error
}

// Workloads returns the workloads of this package.
func Workloads() []Workload {
	return []Workload{
		{Name: "echo", Serve: serveEcho, Dial: dialEcho},
		{Name: "http", Serve: serveHTTP, Dial: dialHTTP},
		{Name: "stream", Bytes: StreamBytes, Serve: serveStream, Dial: dialStream},
	}
}

// each calls serve with every connection of l, and closes the connection afterwards.
func each(l net.Listener, serve func(c net.Conn)) error {
	var g sync.WaitGroup
	defer g.Wait()
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		g.Go(func() {
			defer c.Close()
			serve(c)
		})
	}
}

// conns are the connections of a client.
type conns []net.Conn

func dialAll(ctx context.Context, dial Dial, n int) (cs conns, err error) {
	for range n {
		c, err := dial(ctx)
		if err != nil {
			return nil, errors.Join(err, cs.Close())
		}
		cs = append(cs, c)
	}
	return cs, nil
}

// Finish has nothing to do if each operation waits for its answer.
func (conns) Finish() error { return nil }

// Close closes all of them.
func (cs conns) Close() (err error) {
	for _, c := range cs {
		err = errors.Join(err, c.Close())
	}
	return err
}

// echo is a client of serveEcho.
type echo struct{ conns }

func dialEcho(ctx context.Context, dial Dial, n int) (Client, error) {
	cs, err := dialAll(ctx, dial, n)
	return echo{cs}, err
}

func (e echo) Op(i int) error {
	var b [1]byte
	if _, err := e.conns[i].Write(b[:]); err != nil {
		return err
	}
	_, err := io.ReadFull(e.conns[i], b[:])
	return err
}

func serveEcho(l net.Listener) error {
	return each(l, func(c net.Conn) {
		var b [1]byte
		for {
			if _, err := io.ReadFull(c, b[:]); err != nil {
				return
			}
			if _, err := c.Write(b[:]); err != nil {
				return
			}
		}
	})
}

// answer is the body of an HTTP response.
const answer = "pong"

func serveHTTP(l net.Listener) error {
	err := (&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, answer) // a client that has gone is not an error of the server
	})}).Serve(l)
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// getter is a client of serveHTTP.
type getter struct {
	tr *http.Transport
	c  http.Client
}

func dialHTTP(_ context.Context, dial Dial, n int) (Client, error) {
	tr := &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		MaxConnsPerHost: n, MaxIdleConnsPerHost: n, DisableCompression: true,
	}
	return &getter{tr, http.Client{Transport: tr}}, nil
}

func (g *getter) Op(int) error {
	r, err := g.c.Get("http://server/")
	if err != nil {
		return err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && string(b) != answer {
		err = fmt.Errorf("answer %q", b)
	}
	return err
}

func (g *getter) Finish() error { return nil }

func (g *getter) Close() error {
	g.tr.CloseIdleConnections()
	return nil
}

// StreamBytes is the size of a stream's writes.
const StreamBytes = 64 << 10

// mark, between two writes of a stream, which begin with 0, asks for the number of bytes that have
// arrived.
const mark = 1

// stream is a client of serveStream.
type stream struct {
	conns
	buf  [StreamBytes]byte
	sent []int64
}

func dialStream(ctx context.Context, dial Dial, n int) (Client, error) {
	cs, err := dialAll(ctx, dial, n)
	return &stream{conns: cs, sent: make([]int64, n)}, err
}

func (s *stream) Op(i int) error {
	n, err := s.conns[i].Write(s.buf[:])
	s.sent[i] += int64(n)
	return err
}

// Finish asks for the numbers of bytes that have arrived.
func (s *stream) Finish() error {
	for _, c := range s.conns {
		if _, err := c.Write([]byte{mark}); err != nil {
			return err
		}
	}
	for i, c := range s.conns {
		var b [8]byte
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return err
		}
		if got := int64(binary.LittleEndian.Uint64(b[:])); got != s.sent[i] {
			return fmt.Errorf("%d bytes have arrived, want %d", got, s.sent[i])
		}
	}
	return nil
}

func serveStream(l net.Listener) error {
	return each(l, func(c net.Conn) {
		buf := make([]byte, StreamBytes)
		var sum uint64
		for rest := 0; ; { // of a write
			n, err := c.Read(buf)
			for b := buf[:n]; len(b) > 0; {
				if rest == 0 && b[0] == mark {
					if _, err := c.Write(binary.LittleEndian.AppendUint64(nil, sum)); err != nil {
						return
					}
					b = b[1:]
					continue
				}
				if rest == 0 {
					rest = StreamBytes
				}
				k := min(rest, len(b))
				sum, rest, b = sum+uint64(k), rest-k, b[k:]
			}
			if err != nil {
				return
			}
		}
	})
}

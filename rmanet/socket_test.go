package rmanet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/testutil"
)

// half is the interface of both kinds of connections.
type half interface {
	net.Conn
	CloseRead() error
	CloseWrite() error
}

// network is a way to listen and dial.
type network struct {
	listen func() (net.Listener, error)
	dial   func(ctx context.Context, l net.Listener) (net.Conn, error)
}

// onSockets runs f over every link, and over loopback TCP, which must behave alike.
func onSockets(t *testing.T, f func(t *testing.T, n network)) {
	t.Run("socket", func(t *testing.T) {
		f(t, network{
			func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") },
			func(ctx context.Context, l net.Listener) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
			},
		})
	})
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		es := job(t, 2, fabric)
		f(t, network{
			func() (net.Listener, error) { return Listen(es[1], "0") },
			func(ctx context.Context, l net.Listener) (net.Conn, error) {
				return Dial(ctx, es[0], l.Addr().String())
			},
		})
	})
}

// pair returns the ends of a new connection; its listener is closed.
func (n network) pair(t *testing.T) (a, b half) {
	t.Helper()
	l, err := n.listen()
	require.NoError(t, err)
	defer l.Close()
	c, err := n.dial(testutil.Context(t, time.Minute), l)
	require.NoError(t, err)
	d, err := l.Accept()
	require.NoError(t, err)
	return c.(half), d.(half)
}

// Ends of connections are those of sockets.
func TestEndsLikeSockets(t *testing.T) {
	onSockets(t, func(t *testing.T, n network) {
		one := make([]byte, 1)
		a, b := n.pair(t)
		require.NoError(t, b.Close())
		require.ErrorIs(t, b.Close(), net.ErrClosed)
		_, err := a.Read(one)
		require.Equal(t, io.EOF, err)
		k, err := a.Write([]byte("nobody reads it"))
		require.NoError(t, err, "the first write behind the peer's Close")
		require.Equal(t, 15, k)
		testutil.Eventually(t, time.Minute, func() bool {
			_, err = a.Write(one)
			return err != nil
		}, "a later one fails")
		require.ErrorIs(t, err, syscall.EPIPE)
		_, err = a.Read(one)
		require.Equal(t, io.EOF, err)
		require.NoError(t, a.Close())

		// Unread data at Close ends the peer's stream with an error.
		a, b = n.pair(t)
		_, err = a.Write([]byte("two"))
		require.NoError(t, err)
		_, err = io.ReadFull(b, one)
		require.NoError(t, err)
		require.NoError(t, b.Close())
		_, err = a.Read(one)
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = a.Write(one)
		require.Error(t, err)
		require.NoError(t, a.Close())

		// A peer that does not read does not notice the data sent to it.
		a, b = n.pair(t)
		require.NoError(t, b.CloseRead())
		for range 3 {
			_, err = a.Write(one)
			require.NoError(t, err)
		}
		_, err = b.Write(one)
		require.NoError(t, err)
		_, err = io.ReadFull(a, one)
		require.NoError(t, err)
		require.NoError(t, a.CloseWrite())
		_, err = a.Write(one)
		require.ErrorIs(t, err, syscall.EPIPE)
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())

		// Empty reads and writes do not wait.
		a, b = n.pair(t)
		require.NoError(t, a.SetDeadline(time.Unix(1, 0)))
		_, err = a.Read(nil)
		require.NoError(t, err)
		_, err = a.Read(one)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, a.Close())
		_, err = a.Read(nil)
		require.ErrorIs(t, err, net.ErrClosed)
		require.NoError(t, b.Close())

		l, err := n.listen()
		require.NoError(t, err)
		require.NoError(t, l.Close())
		require.ErrorIs(t, l.Close(), net.ErrClosed)
	})
}

// Ends of contexts are those of net.Dialer.
func TestDialLikeSockets(t *testing.T) {
	onSockets(t, func(t *testing.T, n network) {
		l, err := n.listen()
		require.NoError(t, err)
		defer l.Close()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for range 20 {
			_, err = n.dial(ctx, l)
			require.ErrorIs(t, err, context.Canceled)
		}
		ctx, cancel = context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
		defer cancel()
		_, err = n.dial(ctx, l)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var ne net.Error
		require.ErrorAs(t, err, &ne)
		require.True(t, ne.Timeout())
		c, err := n.dial(testutil.Context(t, time.Minute), l)
		require.NoError(t, err)
		require.NoError(t, c.Close())
	})
}

// Connections beyond the backlog wait for their turn; a Dial to a service with a listener
// is not refused.
func TestBacklog(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		es := job(t, 2, fabric)
		_, err := Configure(es[1], Config{Backlog: 2})
		require.NoError(t, err)
		l, err := Of(es[1]).Listen("80")
		require.NoError(t, err)
		const many = 500
		var g errgroup.Group
		for range many {
			g.Go(func() error {
				c, err := Dial(testutil.Context(t, time.Minute), es[0], "1:80")
				if err != nil {
					return err
				}
				if _, err = c.Write([]byte("x")); err == nil {
					_, err = io.ReadFull(c, make([]byte, 1))
				}
				return errors.Join(err, c.Close())
			})
		}
		ctx := testutil.Context(t, time.Minute)
		// waiting returns when rank 0 has opened that many streams, and many of them are
		// accepted or wait.
		waiting := func(opened uint32) {
			testutil.Eventually(t, time.Minute, func() bool {
				s := Of(es[1]).sessions[0]
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.lastIn == opened && len(s.waits)+len(s.accepted) == many
			}, "all wait")
		}
		waiting(many)
		dialled := func() uint32 {
			s := Of(es[0]).sessions[1]
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.last
		}
		for d := 50 * time.Millisecond; dialled() == many; d *= 2 { // may end before Dial has opened a stream
			short, cancel := context.WithTimeout(ctx, d) // deadline: it has to end
			defer cancel()
			_, err = Dial(short, es[0], "1:80")
			require.ErrorIs(t, err, os.ErrDeadlineExceeded) // full
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		waiting(many + 1)
		for range many {
			c, err := l.Accept()
			require.NoError(t, err)
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
		require.NoError(t, g.Wait())

		// A Dial that waits when the listener closes is refused.
		first, err := Dial(ctx, es[0], "1:80")
		require.NoError(t, err)
		second, err := Dial(ctx, es[0], "1:80")
		require.NoError(t, err)
		g.Go(func() error {
			_, err := Dial(ctx, es[0], "1:80")
			return err
		})
		testutil.Eventually(t, time.Minute, func() bool {
			l.n.mu.Lock()
			defer l.n.mu.Unlock()
			return len(l.waits) == 1
		}, "the third waits")
		require.NoError(t, l.Close())
		require.ErrorIs(t, g.Wait(), syscall.ECONNREFUSED)
		for _, c := range []net.Conn{first, second} {
			_, err = c.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
			require.NoError(t, c.Close())
		}
		require.NoError(t, Of(es[1]).Drain(ctx))
	})
}

// A connection beyond Config.Streams waits for the end of another one.
func TestStreamsWait(t *testing.T) {
	es := job(t, 2, "shm")
	_, err := Configure(es[1], Config{Streams: 1})
	require.NoError(t, err)
	l, err := Listen(es[1], "80")
	require.NoError(t, err)
	ctx := testutil.Context(t, time.Minute)
	first, err := Dial(ctx, es[0], "1:80")
	require.NoError(t, err)
	var g errgroup.Group
	g.Go(func() error {
		c, err := Dial(ctx, es[0], "1:80")
		if err == nil {
			err = c.Close()
		}
		return err
	})
	s := Of(es[1]).sessions[0]
	waiting := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.waits)
	}
	testutil.Eventually(t, time.Minute, func() bool { return waiting() == 1 }, "one waits")
	_, err = Dial(ctx, es[0], "1:80")
	require.ErrorIs(t, err, syscall.ENOBUFS)
	end, err := l.Accept()
	require.NoError(t, err)
	require.Equal(t, 1, waiting())
	require.NoError(t, first.Close()) // which ends both halves
	require.NoError(t, end.Close())
	require.NoError(t, g.Wait())
}

// A Dial is withdrawn while Accept makes room for it: the connection that Accept returns has
// been reset.
func TestWithdrawnWhileAccepted(t *testing.T) {
	es := job(t, 2, "shm")
	n, err := Configure(es[1], Config{Backlog: 1})
	require.NoError(t, err)
	l, err := n.Listen("80")
	require.NoError(t, err)
	ctx := testutil.Context(t, time.Minute)
	first, err := Dial(ctx, es[0], "1:80")
	require.NoError(t, err)
	withdrawn, cancel := context.WithCancel(ctx)
	defer cancel()
	dialled := make(chan error, 1)
	go func() {
		_, err := Dial(withdrawn, es[0], "1:80")
		dialled <- err
	}()
	testutil.Eventually(t, time.Minute, func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(l.waits) == 1
	}, "the second waits")
	testutil.Holding(&n.mu, func() { // as Accept does
		cancel()
		require.ErrorIs(t, <-dialled, context.Canceled)
		stacks := make([]byte, 1<<20)
		testutil.Eventually(t, time.Minute, func() bool {
			return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("rmanet.(*Listener).forget("))
		}, "the engine has found the request, and waits to remove it")
		o := l.waits[n.sessions[0]].Front().Value.(*opening)
		l.drop(o)
		l.come = append(l.come, o.accept())
	})
	c, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, c.Close())
	c, err = l.Accept()
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(testutil.Limit)))
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.NoError(t, c.Close())
	require.NoError(t, first.Close())
	require.NoError(t, n.Drain(ctx))
}

// A peer may have more than 10,000 connections, and idle ones hold next to nothing.
func TestManyConnections(t *testing.T) {
	es := job(t, 2, "shm")
	l, err := Of(es[1]).Listen("80")
	require.NoError(t, err)
	ctx := testutil.Context(t, 3*time.Minute)
	const many = 10_100
	cs := make([]net.Conn, many)
	var g errgroup.Group
	for i := range 20 {
		g.Go(func() (err error) {
			for k := i; k < many && err == nil; k += 20 {
				cs[k], err = Dial(ctx, es[0], "1:80")
			}
			return err
		})
	}
	ends := make([]net.Conn, many)
	for i := range ends {
		ends[i], err = l.Accept()
		require.NoError(t, err)
	}
	require.NoError(t, g.Wait())
	for _, c := range append(cs, ends...) {
		require.NoError(t, c.Close())
	}
	require.NoError(t, Of(es[0]).Drain(ctx))
}

// Memory for one peer is bounded: data beyond the bound stays at the peer, and arrives when
// some has been read; writers wait until the peer has taken data.
func TestMemoryIsBounded(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		es := job(t, 2, fabric)
		const memory = minMemory
		_, err := Configure(es[1], Config{Memory: memory})
		require.NoError(t, err)
		const streams, each = 12, 1 << 20
		var g errgroup.Group
		var ends []*Conn
		var cs []*Conn
		for range streams { // before the data: frames behind data that stays at the peer wait, too
			a, b := connect(t, es, 0, 1)
			cs, ends = append(cs, a), append(ends, b)
		}
		for i, c := range cs {
			g.Go(func() error {
				_, err := c.Write(testutil.Payload(each, uint64(i), 0))
				return errors.Join(err, c.Close())
			})
		}
		s := ends[0].s
		testutil.Eventually(t, time.Minute, s.stalled.Load, "the peer is held up")
		require.LessOrEqual(t, s.in.Load(), int64(memory))
		for i := range ends { // in any order: the first streams hold the memory that the last ones wait for
			g.Go(func() error {
				all, err := io.ReadAll(ends[i])
				if err == nil && len(all) != each {
					err = io.ErrUnexpectedEOF
				}
				return errors.Join(err, testutil.Verify(all, uint64(i), 0), ends[i].Close())
			})
		}
		require.NoError(t, g.Wait())
		require.Zero(t, s.in.Load())
	})
}

// Addresses work where programs use those of TCP: host and port, URLs, httptest.
func TestAddresses(t *testing.T) {
	es := job(t, 3, "shm")
	l, err := Listen(es[1], "0")
	require.NoError(t, err)
	seen := make(chan string, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen <- r.RemoteAddr
	}))
	srv.Listener.Close()
	srv.Listener = l
	srv.Start()
	defer srv.Close()
	u, err := url.Parse(srv.URL)
	require.NoError(t, err)
	require.Equal(t, "rank1.rma", u.Hostname())
	for _, rank := range []int{0, 2} {
		c := &http.Client{Transport: &http.Transport{DialContext: Dialer(es[rank]), DisableKeepAlives: true}}
		resp, err := c.Get(srv.URL + "/x")
		require.NoError(t, err)
		resp.Body.Close()
		host, port, err := net.SplitHostPort(<-seen)
		require.NoError(t, err)
		require.Equal(t, Addr{rank, ""}.String(), host+":")
		require.NotEmpty(t, port)
	}
	again, err := Listen(es[1], "0")
	require.NoError(t, err)
	require.NotEqual(t, l.Addr(), again.Addr())
	require.NoError(t, again.Close())
}

// Memory written before a Write may be read after the Read of its data: the race detector
// sees the order.
func TestReadHappensAfterWrite(t *testing.T) {
	es := job(t, 2, "shm")
	a, b := connect(t, es, 0, 1)
	for _, size := range []int{1, 100_000} {
		var said int
		go func() {
			said = size
			_, _ = a.Write(make([]byte, size))
		}()
		_, err := io.ReadFull(b, make([]byte, size))
		require.NoError(t, err)
		require.Equal(t, size, said)
	}
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

// A first use while the engine closes leaves nothing behind.
func TestNoNetWhileTheEngineCloses(t *testing.T) {
	eng := job(t, 1, "shm")[0]
	eng.BeforeClose(func() {
		_, err := Of(eng).Listen("late")
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = Of(eng).Dial(t.Context(), "0:late")
		require.ErrorIs(t, err, net.ErrClosed)
	})
	require.NoError(t, eng.Close())
	netsMu.Lock()
	defer netsMu.Unlock()
	require.NotContains(t, nets, eng)
}

package rmanet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/jobtest"
	"github.com/seed33544411/rma/internal/testutil"
)

// Bytes of all write sizes arrive complete and in order, on many connections at once, both
// ways, read in pieces of all sizes; data written before Close arrives.
func TestStreams(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		es := job(t, 2, fabric)
		const total = 3 << 20
		var g errgroup.Group
		for i := range 4 {
			a, b := connect(t, es, i%2, 1-i/2)
			for k, c := range []*Conn{a, b} {
				seed := uint64(i*2 + k)
				rng := rand.New(rand.NewPCG(seed, 1))
				g.Go(func() error {
					for off := 0; off < total; {
						n := min([]int{1, 50, 4000, 20_000, 70_000, 700_000}[rng.IntN(6)], total-off)
						m, err := c.Write(testutil.Payload(n, seed, uint64(off)))
						if err != nil || m != n {
							return fmt.Errorf("write %d: %d, %w", n, m, err)
						}
						off += n
					}
					return c.CloseWrite()
				})
				peer := []*Conn{b, a}[k]
				g.Go(func() error {
					rng := rand.New(rand.NewPCG(seed, 2))
					buf := make([]byte, 1<<20)
					for off := 0; ; {
						n, err := peer.Read(buf[:1+rng.IntN(1<<(1+rng.IntN(20)))])
						if errors.Is(err, io.EOF) && off == total {
							return nil
						}
						if err == nil {
							err = testutil.Verify(buf[:n], seed, uint64(off))
						}
						if err != nil {
							return fmt.Errorf("read at %d: %w", off, err)
						}
						off += n
					}
				})
			}
		}
		require.NoError(t, g.Wait())
		require.NoError(t, Of(es[0]).Drain(testutil.Context(t, 20*time.Second)))
		require.NoError(t, Of(es[1]).Drain(testutil.Context(t, 20*time.Second)))
	})
}

// A reader that does not read stops its own writer, at the window, and no other stream.
func TestSlowReader(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		es := job(t, 2, fabric)
		_, err := Configure(es[1], Config{Window: 64 << 10})
		require.NoError(t, err)
		_, err = Configure(es[1], Config{})
		require.Error(t, err)
		slow, _ := connect(t, es, 0, 1)
		quick, other := connect(t, es, 0, 1)
		const window, piece = 64 << 10, 1000
		for range window / piece {
			_, err := slow.Write(make([]byte, piece))
			require.NoError(t, err)
		}
		require.NoError(t, slow.SetWriteDeadline(time.Now().Add(300*time.Millisecond))) // deadline: it has to end
		last, err := slow.Write(make([]byte, piece))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		var ne net.Error
		require.ErrorAs(t, err, &ne)
		require.True(t, ne.Timeout())
		require.Equal(t, window%piece, last)
		var g errgroup.Group
		g.Go(func() error {
			_, err := quick.Write(make([]byte, 1<<20))
			return err
		})
		_, err = io.ReadFull(other, make([]byte, 1<<20))
		require.NoError(t, err)
		require.NoError(t, g.Wait())
	})
}

// Operations that the application leaves incomplete, up to Config.Outstanding, do not stop
// connections, new ones included.
func TestStreamsBesideOutstanding(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		es := job(t, 2, fabric, func(c *rma.Config) { c.Outstanding = 16 })
		old, atOld := connect(t, es, 0, 1)
		end := jobtest.Busy(t, es[0], es[1])
		fresh, atFresh := connect(t, es, 0, 1)
		for _, c := range [][2]*Conn{{old, atOld}, {fresh, atFresh}} {
			for i := range c {
				var g errgroup.Group
				g.Go(func() error {
					_, err := c[i].Write(make([]byte, 1<<20))
					return err
				})
				_, err := io.ReadFull(c[1-i], make([]byte, 1<<20))
				require.NoError(t, err)
				require.NoError(t, g.Wait())
			}
		}
		end()
	})
}

func TestHalfClose(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		es := job(t, 2, fabric)
		a, b := connect(t, es, 0, 1)
		_, err := a.Write([]byte("question"))
		require.NoError(t, err)
		require.NoError(t, a.CloseWrite())
		_, err = a.Write([]byte("more"))
		require.ErrorIs(t, err, syscall.EPIPE)
		all, err := io.ReadAll(b)
		require.NoError(t, err)
		require.Equal(t, "question", string(all))
		_, err = b.Write([]byte("answer"))
		require.NoError(t, err)
		require.NoError(t, b.Close())
		require.ErrorIs(t, b.Close(), net.ErrClosed)
		all, err = io.ReadAll(a)
		require.NoError(t, err)
		require.Equal(t, "answer", string(all))
		require.NoError(t, a.Close())
		_, err = a.Read(make([]byte, 1))
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = a.Write(nil)
		require.ErrorIs(t, err, net.ErrClosed)
		require.ErrorIs(t, a.CloseWrite(), net.ErrClosed)
		require.ErrorIs(t, a.CloseRead(), net.ErrClosed)
		require.ErrorIs(t, a.SetDeadline(time.Time{}), net.ErrClosed)

		// Data for a half that is closed for reading is dropped, however much.
		for _, n := range []int{100, 100_000} {
			a, b = connect(t, es, 1, 0)
			require.NoError(t, b.CloseRead())
			require.NoError(t, a.SetWriteDeadline(time.Now().Add(testutil.Limit)))
			for done := 0; done < 3<<20; done += n {
				_, err = a.Write(make([]byte, n))
				require.NoError(t, err)
			}
			_, err = b.Read(make([]byte, 1))
			require.Equal(t, io.EOF, err)
			_, err = b.Write([]byte("still here"))
			require.NoError(t, err)
			require.NoError(t, b.Close())
			all, err = io.ReadAll(a)
			require.NoError(t, err)
			require.Equal(t, "still here", string(all))
			require.NoError(t, a.Close())
		}
		require.NoError(t, Of(es[0]).Drain(testutil.Context(t, 20*time.Second)))

		a, b = connect(t, es, 0, 1)
		require.NoError(t, a.Abort())
		_, err = b.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.Eventually(t, func() bool {
			_, err = b.Write([]byte("x"))
			return errors.Is(err, syscall.ECONNRESET)
		}, testutil.Limit, time.Millisecond)
		require.NoError(t, b.Close())
	})
}

// Credit that two goroutines grant at once reaches the peer in order: a lower offset behind a
// higher one is a violation of the protocol.
func TestCreditInOrder(t *testing.T) {
	t.Cleanup(func() { controls.New = nil }) // when the engines are closed
	var armed atomic.Bool
	held, release := make(chan struct{}), make(chan struct{})
	controls.New = func() any { // on the way of a frame to the engine
		if armed.CompareAndSwap(true, false) {
			close(held)
			<-release
		}
		return nil
	}
	es := job(t, 2, "shm")
	a, b := connect(t, es, 0, 1)
	x, y := connect(t, es, 0, 1)
	_, err := a.Write(make([]byte, defaultWindow))
	require.NoError(t, err)
	testutil.Eventually(t, testutil.Limit, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		for m := b.rd.q.head; m != nil; m = m.next {
			if !m.ready {
				return false
			}
		}
		return b.rd.came == defaultWindow && a.s.quiet() && b.s.quiet()
	}, "a window of bytes is here")
	runtime.GC()
	runtime.GC() // the second empties controls
	armed.Store(true)
	read := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(b, make([]byte, defaultWindow/2))
		read <- err
	}()
	<-held // Read grants half a window
	require.NoError(t, b.CloseRead())
	close(release)
	require.NoError(t, <-read)
	_, err = y.Write([]byte("behind the credit"))
	require.NoError(t, err)
	_, err = io.ReadFull(x, make([]byte, 17))
	require.NoError(t, err)
	require.NoError(t, a.SetWriteDeadline(time.Now().Add(testutil.Limit)))
	_, err = a.Write(make([]byte, 2*defaultWindow)) // which takes the credit of both
	require.NoError(t, err)
}

// Bytes that CloseRead drops are counted once, wherever they are: the peer gets credit for a
// window more than it has sent, at most.
func TestDroppedBytesAreCountedOnce(t *testing.T) {
	const n = 4000
	arrives := func(t *testing.T, c *Conn, inPlace bool, between func()) {
		land, err := c.arriving(n, inPlace)
		require.NoError(t, err)
		between()
		c.s.arrived(land.Token, [][]byte{make([]byte, n)}, nil)
	}
	for name, drop := range map[string]func(t *testing.T, c *Conn, closeRead func()){
		"in the queue": func(t *testing.T, c *Conn, closeRead func()) {
			arrives(t, c, true, func() {})
			closeRead()
		},
		"being fetched": func(t *testing.T, c *Conn, closeRead func()) { arrives(t, c, false, closeRead) },
		"in the ring":   func(t *testing.T, c *Conn, closeRead func()) { arrives(t, c, true, closeRead) },
		"read in part": func(t *testing.T, c *Conn, closeRead func()) {
			arrives(t, c, true, func() {})
			_, err := c.Read(make([]byte, 1))
			require.NoError(t, err)
			closeRead()
		},
		"being fetched for a Read": func(t *testing.T, c *Conn, closeRead func()) {
			read := make(chan error, 1)
			go func() {
				_, err := c.Read(make([]byte, n))
				read <- err
			}()
			testutil.Eventually(t, testutil.Limit, func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.rd.claim != nil
			}, "it waits")
			arrives(t, c, false, closeRead)
			if err := <-read; err != nil {
				require.ErrorIs(t, err, io.EOF)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			es := job(t, 2, "shm")
			l, err := Of(es[1]).Listen("pair")
			require.NoError(t, err)
			s := newSession(Of(es[1]), 0)
			require.NoError(t, s.opens(frame{kind: kindOpen, num: 1, n: minWindow, service: "pair"}))
			accepted, err := l.Accept()
			require.NoError(t, err)
			c := accepted.(*Conn)
			drop(t, c, func() { require.NoError(t, c.CloseRead()) })
			require.EqualValues(t, n, c.rd.came)
			require.EqualValues(t, n, c.rd.taken)
			require.Zero(t, s.in.Load())
			require.NoError(t, c.Close())
		})
	}
}

// A Read returns what has arrived in its memory in front of the first message that was lost with the peer.
func TestReadUpToTheLoss(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lost  []int // of three messages of ten bytes, in the order of their ends
		whole []int
		want  int
	}{
		"first": {[]int{0}, []int{1, 2}, 0},
		"later": {[]int{2, 1}, []int{0}, 10},
		"last":  {[]int{2}, []int{1, 0}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, d := connect(t, job(t, 2, "shm"), 1, 0)
			defer d.Close()
			type result struct {
				n   int
				err error
			}
			reads, buf := make(chan result, 1), make([]byte, 100)
			go func() {
				n, err := c.Read(buf)
				reads <- result{n, err}
			}()
			testutil.Eventually(t, testutil.Limit, func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.rd.claim != nil
			}, "it waits")
			var ls [3]rma.Landing
			for i := range ls {
				ls[i] = c.s.arriving(rma.Envelope{Tag: tagData | toOpener | c.num, Len: 10}, false)
			}
			for _, i := range test.lost {
				c.s.arrived(ls[i].Token, nil, rma.ErrPeerGone)
			}
			for _, i := range test.whole {
				copy(ls[i].Buf, testutil.Payload(10, 1, uint64(10*i)))
				c.s.arrived(ls[i].Token, [][]byte{ls[i].Buf}, nil)
			}
			got := <-reads
			for got.n < test.want && got.err == nil { // of a link whose fetches need the peer
				n, err := c.Read(buf[got.n:])
				got = result{got.n + n, err}
			}
			require.Equal(t, test.want, got.n)
			require.Equal(t, testutil.Payload(test.want, 1, 0), buf[:test.want])
			if got.n == 0 {
				require.ErrorIs(t, got.err, syscall.ECONNRESET)
			}
			_, err := c.Read(buf)
			require.ErrorIs(t, err, syscall.ECONNRESET)
		})
	}
}

func TestListen(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, 60*time.Second)
		es := job(t, 3, fabric)
		_, err := Configure(es[0], Config{Backlog: 2, Streams: 3})
		require.NoError(t, err)
		l, err := Listen(es[0], "8080")
		require.NoError(t, err)
		require.Equal(t, "rank0.rma:8080", l.Addr().String())
		require.Equal(t, "rma", l.Addr().Network())
		_, err = Listen(es[0], "8080")
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		for _, bad := range []string{"", "~1", "a/b", "a:b", "65536", string(make([]byte, MaxService+1))} {
			l, err := Listen(es[0], bad)
			require.Error(t, err)
			require.True(t, l == nil, "no nil *Listener")
		}
		for _, bad := range []string{"8080", "x:8080", "-1:8080", "7:8080", "rma://0/8080", "rank0:8080", "0.rma:8080", "0:", "0:65536"} {
			_, err = Dial(ctx, es[1], bad)
			var ae *net.AddrError
			require.ErrorAs(t, err, &ae, bad)
		}
		_, err = Dial(ctx, es[1], "0:9090")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		var conns []net.Conn
		for range 2 {
			c, err := Dial(ctx, es[1], "0:8080")
			require.NoError(t, err)
			conns = append(conns, c)
		}
		for _, c := range conns {
			d, err := l.Accept()
			require.NoError(t, err)
			require.Equal(t, c.LocalAddr(), d.RemoteAddr())
			require.Equal(t, c.RemoteAddr(), d.LocalAddr())
			defer d.Close()
		}
		third, err := Dial(ctx, es[1], "0:8080")
		require.NoError(t, err)
		require.NoError(t, l.Close()) // which resets the third
		_, err = third.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.ErrorIs(t, l.Close(), net.ErrClosed)
		_, err = l.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
		l2, err := Of(es[0]).Listen("8080")
		require.NoError(t, err)
		require.NoError(t, l2.SetDeadline(time.Now()))
		_, err = l2.Accept()
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)

		// A rank that does not use the package yet keeps Dial waiting.
		soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond) // deadline: it has to end
		defer cancel()
		l3 := make(chan error, 1)
		_, err = Dial(soon, es[0], "2:late")
		require.Error(t, err)
		require.NotErrorIs(t, err, syscall.ECONNREFUSED)
		go func() {
			l, err := Listen(es[2], "late")
			if err == nil {
				var c net.Conn
				for err == nil { // the first is of the Dial that has given up
					if c, err = l.Accept(); err == nil {
						_, _ = c.Write([]byte("hi"))
						c.Close()
					}
				}
			}
			l3 <- err
		}()
		require.Eventually(t, func() bool {
			c, err := Dial(ctx, es[0], "2:late")
			if err != nil {
				return false
			}
			b, err := io.ReadAll(c)
			return err == nil && string(b) == "hi" && c.Close() == nil
		}, testutil.Limit, 10*time.Millisecond)
		require.NoError(t, es[2].Close())
		require.ErrorIs(t, <-l3, net.ErrClosed)
		_, err = Listen(es[2], "late")
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = Dial(ctx, es[2], "0:8080")
		require.ErrorIs(t, err, net.ErrClosed)
		require.Eventually(t, func() bool {
			_, err = Dial(ctx, es[0], "2:late")
			return errors.Is(err, rma.ErrPeerGone) && errors.Is(err, syscall.ECONNRESET)
		}, testutil.Limit, time.Millisecond)
	})
}

// Data that the peer refuses was sent to a connection that it has closed. Whether that was a
// close or a reset, the peer's frame says, for which a Write waits. Any other send that
// fails, such as one that a device refuses while the peer ends, is a reset.
func TestErrorsOfSends(t *testing.T) {
	es := job(t, 2, "shm")
	refused := &rma.PeerError{Rank: 1, Op: "send", Err: rma.ErrUnwanted}
	for name, test := range map[string]struct {
		send  error
		close func(b *Conn) error
		want  error
	}{
		"close": {refused, (*Conn).Close, syscall.EPIPE},
		"abort": {refused, (*Conn).Abort, syscall.ECONNRESET},
		"unread data": {refused, func(b *Conn) error {
			testutil.Eventually(t, testutil.Limit, func() bool {
				b.mu.Lock()
				defer b.mu.Unlock()
				return b.rd.came > 0
			}, "the data has arrived")
			return b.Close()
		}, syscall.ECONNRESET},
		"device": {&rma.PeerError{Rank: 1, Op: "send", Err: rma.ErrRemoteAccess}, (*Conn).Close, syscall.ECONNRESET},
	} {
		a, b := connect(t, es, 0, 1)
		if name == "unread data" {
			_, err := a.Write([]byte("not read"))
			require.NoError(t, err)
			testutil.Eventually(t, testutil.Limit, func() bool {
				a.mu.Lock()
				defer a.mu.Unlock()
				return a.wr.inFlight == 0
			}, "the data has been sent")
		}
		a.broken(test.send)
		wrote := make(chan error, 1)
		go func() {
			_, err := a.Write([]byte("x"))
			wrote <- err
		}()
		require.NoError(t, test.close(b), name)
		require.ErrorIs(t, <-wrote, test.want, name)
		require.NoError(t, a.Close(), name)
	}
	// No frame comes: the peer's session is lost.
	a, _ := connect(t, es, 0, 1)
	a.broken(refused)
	wrote := make(chan error, 1)
	go func() {
		_, err := a.Write([]byte("x"))
		wrote <- err
	}()
	a.s.fail(refused)
	require.ErrorIs(t, <-wrote, syscall.ECONNRESET)
}

// Calls in progress end when the peer's engine ends, or this side's.
func TestPeerLeaves(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		es := job(t, 3, fabric)
		a, b := connect(t, es, 0, 1)
		half, bHalf := connect(t, es, 0, 1)
		other, rest := connect(t, es, 0, 2)
		_, err := bHalf.Write([]byte("last words"))
		require.NoError(t, err)
		require.NoError(t, bHalf.CloseWrite())
		testutil.Eventually(t, 20*time.Second, func() bool {
			half.mu.Lock()
			defer half.mu.Unlock()
			return half.rd.fin
		}, "the end of the stream has come")
		reads, writes := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := a.Read(make([]byte, 10))
			reads <- err
		}()
		go func() {
			_, err := a.Write(make([]byte, 8<<20))
			writes <- err
		}()
		testutil.Eventually(t, 20*time.Second, func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.rd.came > 100_000
		}, "the write has begun")
		require.NoError(t, es[1].Close())
		for _, ch := range []chan error{reads, writes} {
			err := <-ch
			require.ErrorIs(t, err, syscall.ECONNRESET)
			var op *net.OpError
			require.ErrorAs(t, err, &op)
			require.Equal(t, "rma", op.Net)
		}
		all, err := io.ReadAll(half)
		require.NoError(t, err)
		require.Equal(t, "last words", string(all))
		_, err = io.Copy(io.Discard, b)
		require.ErrorIs(t, err, net.ErrClosed)
		// Other connections continue.
		_, err = other.Write([]byte("x"))
		require.NoError(t, err)
		_, err = io.ReadFull(rest, make([]byte, 1))
		require.NoError(t, err)
		go func() {
			_, err := other.Read(make([]byte, 10))
			reads <- err
		}()
		require.NoError(t, es[0].Close())
		require.ErrorIs(t, <-reads, net.ErrClosed)
		require.NoError(t, a.Close())
	})
}

// Small reads and writes do not allocate.
func TestNoAllocation(t *testing.T) {
	if testutil.Race {
		t.Skip("the race detector makes sync.Pool forget")
	}
	es := job(t, 2, "shm")
	a, b := connect(t, es, 0, 1)
	out, in := make([]byte, 100), make([]byte, 100)
	ping := func() {
		if _, err := a.Write(out); err != nil {
			panic(err)
		}
		if _, err := io.ReadFull(b, in); err != nil {
			panic(err)
		}
	}
	for range 100 {
		ping()
	}
	runtime.GC()
	require.Less(t, testutil.AllocsPerRun(500, ping), 0.5) // credit, now and then
}

// loseConnection ends the connection of the engines of rank 0 and of another one.
func loseConnection(t *testing.T, es []*rma.Engine, other int) {
	t.Helper()
	mine, err := es[0].Alloc(8)
	require.NoError(t, err)
	mem, err := es[other].Alloc(8)
	require.NoError(t, err)
	require.NoError(t, mem.Close())
	ctx := testutil.Context(t, testutil.Limit)
	require.ErrorIs(t, es[0].Peer(other).Put(mem.Key().At(0), mine.Slice(0, 8)).Wait(ctx), rma.ErrRemoteAccess)
}

// Connections end with the engines' connection, and new ones are made after Peer.Reset, again and
// again; a rank's connection with itself concerns no other rank.
func TestDialAfterReset(t *testing.T) {
	for _, fabric := range []string{"shm", "tcp"} {
		for _, to := range []int{1, 0} {
			t.Run(fmt.Sprintf("%s to %d", fabric, to), func(t *testing.T) {
				es := job(t, 2, fabric)
				ctx := testutil.Context(t, 30*time.Second)
				p := es[0].Peer(to)
				kept, other := connect(t, es, 0, 1)
				for range 3 {
					a, b := connect(t, es, 0, to)
					c, d := connect(t, es, to, 0)
					loseConnection(t, es, to)
					for _, x := range []*Conn{a, b, c, d} {
						_, err := x.Read(make([]byte, 1))
						require.ErrorIs(t, err, syscall.ECONNRESET)
					}
					_, err := Dial(ctx, es[0], Addr{to, "pair"}.String())
					require.ErrorIs(t, err, syscall.ECONNRESET)
					require.NoError(t, p.Reset(ctx))
					require.NoError(t, es[to].Peer(0).Reset(ctx), "waits for the same connection")
					require.NoError(t, a.Close())
					require.NoError(t, d.Close())
				}
				a, b := connect(t, es, 0, to)
				c, d := connect(t, es, to, 0)
				for _, x := range [][2]*Conn{{a, b}, {c, d}, {d, c}, {kept, other}} {
					if x[0] == kept && to == 1 {
						continue // lost
					}
					_, err := x[0].Write([]byte("again"))
					require.NoError(t, err)
					_, err = io.ReadFull(x[1], make([]byte, 5))
					require.NoError(t, err)
				}
			})
		}
	}
}

// A peer that has violated the protocol is told so when it dials, and when its Dial waits for
// room; after the loss of the engines' connection and Peer.Reset it may connect again.
func TestDialAfterViolation(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		es := job(t, 2, fabric)
		n, err := Configure(es[0], Config{Backlog: 1})
		require.NoError(t, err)
		l, err := n.Listen("80")
		require.NoError(t, err)
		ctx := testutil.Context(t, testutil.Limit)
		first, err := Dial(ctx, es[1], "0:80")
		require.NoError(t, err)
		waits := make(chan error, 1)
		go func() {
			_, err := Dial(ctx, es[1], "0:80")
			waits <- err
		}()
		testutil.Eventually(t, testutil.Limit, func() bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return len(l.waits) == 1
		}, "the second waits")
		n.sessions[1].fail(protocolError("as if there were one"))
		_, err = first.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.ErrorIs(t, err, ErrProtocol)
		require.ErrorIs(t, <-waits, ErrProtocol)
		_, err = Dial(ctx, es[1], "0:80")
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.ErrorIs(t, err, ErrProtocol)
		_, err = Dial(ctx, es[0], "1:80")
		require.ErrorIs(t, err, ErrProtocol)

		loseConnection(t, es, 1)
		require.NoError(t, es[0].Peer(1).Reset(ctx))
		require.NoError(t, es[1].Peer(0).Reset(ctx), "waits for the same connection")
		for from := range es {
			a, b := connect(t, es, from, 1-from)
			_, err = a.Write([]byte("again"))
			require.NoError(t, err)
			_, err = io.ReadFull(b, make([]byte, 5))
			require.NoError(t, err)
		}
	})
}

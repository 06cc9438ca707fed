//go:build unix

package rmanet

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup"
)

const twoToken = "a token of two"

// two opens rank 0 of a job of two; the child that is started is rank 1.
func two(t *testing.T, child testutil.Child, fabric string, args ...string) (*rma.Engine, *testutil.Proc) {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	srv, err := wireup.Serve(context.Background(), ln, wireup.ServerConfig{Size: 2, Token: []byte(twoToken)})
	require.NoError(t, err)
	t.Cleanup(func() { srv.Close() })
	root := "unix:" + ln.Addr().String()
	p := child.Start(t, append([]string{root, fabric}, args...)...)
	eng, err := rankOfTwo(0, root, fabric)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, eng.Close()) })
	return eng, p
}

func rankOfTwo(rank int, root, fabric string) (*rma.Engine, error) {
	return rma.Open(context.Background(), &rma.Config{
		Job:    &rma.Job{Rank: rank, Size: 2, Root: root, Token: []byte(twoToken)},
		Fabric: rma.Fabric(fabric), SetupTimeout: 3 * time.Minute, PeerTimeout: time.Minute, Sampling: "off",
	})
}

const stopSeed = 3

// stopChild serves three connections until it is killed: it checks what it reads from
// the first and says how much that was, leaves the second alone, and writes to the third.
var stopChild = testutil.NewChild("stopped", func(args []string, _ *bufio.Reader, out io.Writer) error {
	eng, err := rankOfTwo(1, args[0], args[1])
	if err != nil {
		return err
	}
	l, err := Listen(eng, "7")
	if err != nil {
		return err
	}
	var cs [3]net.Conn
	for i := range cs {
		if cs[i], err = l.Accept(); err != nil {
			return err
		}
	}
	fail := make(chan error)
	go func() {
		for buf := make([]byte, 300_000); ; { // until the other side closes
			if _, err := cs[2].Write(buf); err != nil {
				return
			}
		}
	}()
	go func() {
		buf := make([]byte, 100_000)
		for off := 0; ; {
			n, err := cs[0].Read(buf)
			if err == nil {
				err = testutil.Verify(buf[:n], stopSeed, uint64(off))
			}
			if off += n; errors.Is(err, io.EOF) {
				fmt.Fprintln(out, off)
				return
			} else if err != nil {
				fail <- fmt.Errorf("read at %d: %w", off, err)
			}
		}
	}()
	fmt.Fprintln(out, "ready")
	return <-fail
})

// Deadlines and Close end Reads and Writes while the peer's process is stopped, also in the
// middle of messages that it was sending or receiving. The caller may reuse the memory of a
// Write that has returned; the data arrives unchanged when the peer continues.
func TestStoppedPeer(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		eng, p := two(t, stopChild, fabric)
		ctx := testutil.Context(t, 3*time.Minute)
		var cs [3]net.Conn
		for i := range cs {
			var err error
			cs[i], err = Dial(ctx, eng, "1:7")
			require.NoError(t, err)
		}
		require.Equal(t, "ready", p.Line(t, 3*time.Minute))
		in := make([]byte, 1<<20)
		for range 20 { // so that the stream is in full flow
			_, err := cs[2].Read(in)
			require.NoError(t, err)
		}
		sent := 0
		write := func() error {
			b := testutil.Payload(200_000, stopSeed, uint64(sent))
			n, err := cs[0].Write(b)
			sent += n
			clear(b)
			return err
		}
		require.NoError(t, write())
		p.Stop(t)
		defer p.Continue()

		testutil.Within(t, time.Minute, "a Write with a deadline", func() {
			_ = cs[0].SetWriteDeadline(time.Now().Add(300 * time.Millisecond)) // deadline: it has to end
			for err := error(nil); err == nil; {
				err = write()
				if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("write: %v", err)
				}
			}
		})
		testutil.Within(t, time.Minute, "a Read with a deadline", func() {
			_ = cs[2].SetReadDeadline(time.Now().Add(300 * time.Millisecond)) // deadline: it has to end
			for err := error(nil); err == nil; {
				_, err = cs[2].Read(in)
				if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("read: %v", err)
				}
			}
		})
		_ = cs[2].SetReadDeadline(time.Time{})
		ended := make(chan error, 2)
		go func() {
			_, err := cs[1].Write(make([]byte, 64<<20))
			ended <- err
		}()
		go func() {
			var err error
			for err == nil { // what arrived behind the deadline above
				_, err = cs[2].Read(in)
			}
			ended <- err
		}()
		require.NoError(t, cs[1].Close())
		require.NoError(t, cs[2].Close())
		testutil.Within(t, time.Minute, "a Read and a Write on connections that were closed", func() {
			for range 2 {
				if err := <-ended; !errors.Is(err, net.ErrClosed) {
					t.Errorf("ended with %v", err)
				}
			}
		})

		p.Continue()
		require.NoError(t, cs[0].SetWriteDeadline(time.Time{}))
		require.NoError(t, write())
		require.NoError(t, cs[0].Close())
		require.Equal(t, fmt.Sprint(sent), p.Line(t, time.Minute))

		last, err := Dial(ctx, eng, "1:7") // is never accepted
		require.NoError(t, err)
		p.Kill()
		_, err = last.Read(in)
		require.ErrorIs(t, err, syscall.ECONNRESET)
		if fabric != "ibv" || !errors.Is(err, rma.ErrRemoteAccess) { // which a device may report of a process that is dying
			require.ErrorIs(t, err, rma.ErrPeerGone)
		}
		require.NoError(t, last.Close())
	})
}

// exitChild writes, closes the connection and the engine, and exits.
var exitChild = testutil.NewChild("exit", func(args []string, _ *bufio.Reader, out io.Writer) error {
	eng, err := rankOfTwo(1, args[0], args[1])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c, err := Dial(ctx, eng, "0:7")
	if err != nil {
		return err
	}
	if _, err := c.Write(testutil.Payload(exitBytes, stopSeed, 0)); err != nil {
		return err
	}
	for off := exitBytes; off < 2*exitBytes; off += 1000 {
		if _, err := c.Write(testutil.Payload(1000, stopSeed, uint64(off))); err != nil {
			return err
		}
	}
	return errors.Join(c.Close(), eng.Close())
})

const exitBytes = 400_000 // twice that fits the window: the writer does not wait for the reader

// Data written before Close arrives, although the process that wrote it closes its engine
// and exits at once, before anything was read.
func TestWriteCloseExit(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		for range 5 {
			eng, p := two(t, exitChild, fabric)
			l, err := Listen(eng, "7")
			require.NoError(t, err)
			c, err := l.Accept()
			require.NoError(t, err)
			require.NoError(t, p.Wait(3*time.Minute))
			all, err := io.ReadAll(c)
			require.NoError(t, err)
			require.Len(t, all, 2*exitBytes)
			require.NoError(t, testutil.Verify(all, stopSeed, 0))
			require.NoError(t, c.Close())
		}
	})
}

// Messages of one byte that are announced do not take the memory of large ones.
func TestTinyMessages(t *testing.T) {
	es := job(t, 2, "shm", func(c *rma.Config) { c.Mode = "scatter" })
	l := &liar{t, es[0]}
	ln, err := Of(es[1]).Listen("pair")
	require.NoError(t, err)
	l.tell(frame{kind: kindOpen, num: 1, n: 1 << 20, service: "pair"})
	require.EqualValues(t, kindAccept, l.frame().kind)
	c, err := ln.Accept()
	require.NoError(t, err)
	const n = 20_000
	for i := range n / 8 {
		b := binary.LittleEndian.AppendUint64(nil, uint64(i))
		for k := range b {
			l.raw(tagData|1, b[k:k+1])
		}
	}
	v := c.(*Conn)
	most := int64(0)
	testutil.Eventually(t, time.Minute, func() bool {
		most = max(most, v.s.in.Load())
		v.mu.Lock()
		defer v.mu.Unlock()
		q := &v.rd.q
		return v.rd.came == n && q.head.ready && q.tail.ready && v.s.in.Load() <= 4*n
	}, "all is here, and put together")
	require.LessOrEqual(t, most, int64(2<<20), "at most twice the window")
	buf := make([]byte, n)
	_, err = io.ReadFull(c, buf)
	require.NoError(t, err)
	for i := range n / 8 {
		require.EqualValues(t, i, binary.LittleEndian.Uint64(buf[8*i:]))
	}
	require.Zero(t, v.s.in.Load())
	require.NoError(t, c.Close())
}

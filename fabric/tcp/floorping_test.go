//go:build linux && !rma_portable

package tcp

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/testutil"
)

// ball is a bare socket and its memory.
type ball struct {
	fd     int
	in     []byte
	out    []byte
	epolls []int
}

func newBall(c net.Conn, congestion string, watched bool) (b ball, err error) {
	if b.fd, err = rawSocket(c.(*net.TCPConn)); err != nil {
		return b, err
	}
	if err = setCongestion(b.fd, congestion); err != nil {
		return b, err
	}
	if b.in, err = offheap.Alloc(2*rxSize, offheap.Staging); err != nil {
		return b, err
	}
	b.in, b.out = b.in[:rxSize], b.in[rxSize:]
	// As an engine has it: the socket in the link's poller, that in the engine's.
	for fd := b.fd; watched && len(b.epolls) < 2; {
		ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err == nil {
			err = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN})
		}
		if err != nil {
			return b, err
		}
		b.epolls = append(b.epolls, ep)
		fd = ep
	}
	return b, nil
}

func (b *ball) close() {
	for _, fd := range append(b.epolls, b.fd) {
		_ = unix.Close(fd)
	}
	_ = offheap.Free(b.in[:2*rxSize], offheap.Staging)
}

// throw sends n bytes, which the socket has room for.
func (b *ball) throw(n int) error {
	if k, errno := sendBytes(b.fd, fabric.Addr(b.out), n); errno != 0 || k != n {
		return fmt.Errorf("send: %d of %d bytes: %w", k, n, errno)
	}
	return nil
}

// catch receives n bytes, by looking again and again. 0 is the other side's end.
func (b *ball) catch(n int) (got int, err error) {
	for got < n {
		k, errno := recvBytes(b.fd, fabric.Addr(b.in), len(b.in))
		switch {
		case errno == unix.EAGAIN || errno == unix.EINTR:
		case errno != 0:
			return got, errno
		case k == 0:
			return 0, nil
		default:
			got += k
		}
	}
	return got, nil
}

// floorEcho is the other process: it sends back what it gets.
var floorEcho = testutil.NewChild("floor-echo", func(args []string, _ *bufio.Reader, _ io.Writer) error {
	keepOn(1)
	c, err := net.Dial("tcp", args[0])
	if err != nil {
		return err
	}
	size, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	b, err := newBall(c, args[2], args[3] == "true")
	if err != nil {
		return err
	}
	for {
		if n, err := b.catch(size); err != nil || n == 0 {
			return err
		}
		if err := b.throw(size); err != nil {
			return err
		}
	}
})

// BenchmarkFloorPing is half a round trip over a bare socket, to which
// BenchmarkPutLatency compares: one send, receives until the answer is there. 40
// bytes are the frame of a put of 8, 56 that of a message of 8. Watched sockets are in
// a poller that nobody asks.
func BenchmarkFloorPing(b *testing.B) {
	for _, cc := range []string{"reno", KernelCongestion} {
		for _, watched := range []bool{false, true} {
			for _, size := range []int{40, 56, 4 << 10} {
				b.Run(fmt.Sprintf("%s/watched=%v/%d", cc, watched, size), func(b *testing.B) { floorPing(b, cc, size, watched) })
			}
		}
	}
}

func floorPing(b *testing.B, congestion string, size int, watched bool) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer ln.Close()
	floorEcho.Start(b, ln.Addr().String(), strconv.Itoa(size), congestion, strconv.FormatBool(watched))
	c, err := ln.Accept()
	require.NoError(b, err)
	x, err := newBall(c, congestion, watched)
	require.NoError(b, err)
	defer x.close()
	keepOn(0) // not before the other process is there: it would inherit it
	for b.Loop() {
		err := x.throw(size)
		if err == nil {
			_, err = x.catch(size)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2, "ns/half")
}

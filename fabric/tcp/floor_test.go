//go:build linux && !rma_portable

package tcp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/testutil"
)

// floorBuffer is what both ends of a floor send from and receive into, again and
// again: as BenchmarkBandwidth does for 1 MiB.
const floorBuffer = 1 << 20

// floorSink is the other process: it reads as fast as it can and throws away.
var floorSink = testutil.NewChild("floor-sink", func(args []string, _ *bufio.Reader, _ io.Writer) error {
	keepOn(1)
	c, err := net.Dial("tcp", args[0])
	if err != nil {
		return err
	}
	fd, err := rawSocket(c.(*net.TCPConn))
	if err != nil {
		return err
	}
	mem, err := offheap.Alloc(floorBuffer, offheap.Staging)
	if err != nil {
		return err
	}
	for {
		n, errno := recvBytes(fd, fabric.Addr(mem), len(mem))
		switch {
		case errno == unix.EAGAIN || errno == unix.EINTR:
		case errno != 0:
			return errno
		case n == 0:
			return nil
		}
	}
})

// keepOn keeps this goroutine on a processor, where there is more than one. The
// goroutine's thread ends with it.
func keepOn(cpu int) {
	runtime.LockOSThread()
	if runtime.NumCPU() > 1 {
		var set unix.CPUSet
		set.Set(cpu)
		_ = unix.SchedSetaffinity(0, &set)
	}
}

// rawSocket takes a non-blocking descriptor out of c.
func rawSocket(c *net.TCPConn) (fd int, err error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	cerr := rc.Control(func(s uintptr) {
		if fd, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			err = errors.Join(unix.SetNonblock(fd, true), unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
		}
	})
	return fd, errors.Join(err, cerr, c.Close())
}

// floorSocket is a connection to a sink.
func floorSocket(b *testing.B, congestion string) int {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer ln.Close()
	floorSink.Start(b, ln.Addr().String())
	c, err := ln.Accept()
	require.NoError(b, err)
	fd, err := rawSocket(c.(*net.TCPConn))
	require.NoError(b, err)
	b.Cleanup(func() { _ = unix.Close(fd) })
	require.NoError(b, setCongestion(fd, congestion))
	return fd
}

// BenchmarkFloor streams over a bare socket, to which BenchmarkBandwidth compares:
// by plain sends of several sizes (full is as many whole segments as go into a
// write), without copying at the sender (MSG_ZEROCOPY), and by pages handed over
// through a pipe (vmsplice and splice).
func BenchmarkFloor(b *testing.B) {
	for _, cc := range []string{"reno", KernelCongestion} {
		for _, size := range []int{16 << 10, 64 << 10, 256 << 10, 1 << 20} {
			for _, how := range []string{"send", "full", "zerocopy", "splice"} {
				b.Run(fmt.Sprintf("%s/%s/%d", cc, how, size), func(b *testing.B) { floor(b, cc, how, size) })
			}
		}
	}
}

func floor(b *testing.B, congestion, how string, size int) {
	fd := floorSocket(b, congestion)
	keepOn(0) // not before the other process is there: it would inherit it
	mem, err := offheap.Alloc(floorBuffer, offheap.Staging)
	require.NoError(b, err)
	defer func() { require.NoError(b, offheap.Free(mem, offheap.Staging)) }()
	for i := range mem {
		mem[i] = byte(i)
	}
	put := func(p []byte) (int, error) { return unix.SendmsgN(fd, p, nil, nil, unix.MSG_NOSIGNAL) }
	switch how {
	case "full":
		mss, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG)
		require.NoError(b, err)
		size = max(size/mss, 1) * mss
	case "zerocopy":
		require.NoError(b, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ZEROCOPY, 1))
		put = zerocopySend(fd)
	case "splice":
		put = spliceSend(b, fd)
	}
	b.SetBytes(int64(size))
	off := 0
	for b.Loop() {
		for left := size; left > 0; {
			n, err := put(mem[off:min(off+left, len(mem))])
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS) {
				continue
			}
			if err != nil {
				b.Fatal(err)
			}
			left -= n
			if off += n; off == len(mem) {
				off = 0
			}
		}
	}
}

// zerocopySend leaves the data in its place and reads now and then what the
// kernel has to say about it.
func zerocopySend(fd int) func([]byte) (int, error) {
	var oob [256]byte
	calls := 0
	return func(p []byte) (int, error) {
		n, err := unix.SendmsgN(fd, p, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_ZEROCOPY)
		if calls++; calls%16 == 0 || err == unix.ENOBUFS {
			for {
				if _, _, _, _, e := unix.Recvmsg(fd, nil, oob[:], unix.MSG_ERRQUEUE); e != nil {
					break
				}
			}
		}
		return n, err
	}
}

// spliceSend hands pages over without a copy of their bytes.
func spliceSend(b *testing.B, fd int) func([]byte) (int, error) {
	var p [2]int
	require.NoError(b, unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
	b.Cleanup(func() { _, _ = unix.Close(p[0]), unix.Close(p[1]) })
	if _, err := unix.FcntlInt(uintptr(p[1]), unix.F_SETPIPE_SZ, floorBuffer); err != nil && !strings.Contains(err.Error(), "permitted") {
		b.Fatal(err)
	}
	inPipe := 0
	return func(buf []byte) (int, error) {
		if inPipe == 0 {
			v := unix.Iovec{Base: &buf[0]}
			v.SetLen(len(buf))
			n, err := unix.Vmsplice(p[1], []unix.Iovec{v}, 0)
			if err != nil {
				return 0, err
			}
			inPipe = n
		}
		n, err := unix.Splice(p[0], nil, fd, nil, inPipe, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MORE)
		if err != nil {
			return 0, err
		}
		inPipe -= int(n)
		return int(n), nil
	}
}

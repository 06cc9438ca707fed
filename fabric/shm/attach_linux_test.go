package shm

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
)

// An endpoint attaches to its peer's memory while it is up, where the system permits it, and reads
// memory that is not registered, also when it is closed.
func TestAttach(t *testing.T) {
	x, y := pair(t, Options{}, fabric.EndpointOptions{})
	a := x.link.Attach(x)
	require.NotNil(t, a)
	src, dst := make([]byte, 3<<20), make([]byte, 3<<20)
	for i := range src {
		src[i] = byte(i * 7)
	}
	require.NoError(t, a.Read(dst[1:], fabric.Addr(src[1:])))
	require.Equal(t, src[1:], dst[1:])
	require.NoError(t, a.Read(nil, 0))
	for _, at := range []uint64{0, 64, 1 << 47, 1<<63 - 1, 1<<64 - 1} {
		require.ErrorIs(t, a.Read(dst, at), unix.EFAULT, at)
	}
	require.NoError(t, y.Close())
	require.NoError(t, x.Close())
	require.NoError(t, a.Read(dst[:1], fabric.Addr(src)), "the process is there")
	require.Nil(t, x.link.Attach(x), "the endpoint is not up")
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())

	x, _ = pair(t, Options{DisableCMA: true}, fabric.EndpointOptions{})
	require.Nil(t, x.link.Attach(x))
}

// A process that has ended is not read any more, nor is another one that has its id.
func TestAttachEnded(t *testing.T) {
	child := exec.Command("sleep", "1000")
	require.NoError(t, child.Start())
	fd, err := unix.PidfdOpen(child.Process.Pid, 0)
	require.NoError(t, err)
	a := &attachment{pid: child.Process.Pid, pidfd: fd, step: -1}
	buf := make([]byte, 8)
	require.ErrorIs(t, a.Read(buf, 64), unix.EFAULT)
	require.NoError(t, child.Process.Kill())
	_ = child.Wait()
	require.ErrorIs(t, a.Read(buf, 64), fabric.ErrPeerGone)
	a.pid = os.Getpid()
	require.ErrorIs(t, a.Read(buf, fabric.Addr(make([]byte, 8))), fabric.ErrPeerGone)
	require.NoError(t, a.Close())
}

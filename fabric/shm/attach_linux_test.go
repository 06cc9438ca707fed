package shm

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// An endpoint attaches to its peer's memory while it is up, where the system permits it, and reads and
// writes memory that is not registered, also when it is closed.
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
	back := make([]byte, 3<<20)
	require.NoError(t, a.Write(dst[1:], fabric.Addr(back[1:])))
	require.Equal(t, dst, back)
	require.False(t, a.Ended())
	for _, at := range []uint64{0, 64, 1 << 47, 1<<63 - 1, 1<<64 - 1} {
		require.ErrorIs(t, a.Read(dst, at), unix.EFAULT, at)
		require.ErrorIs(t, a.Write(dst, at), unix.EFAULT, at)
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

// A process that has ended is not accessed any more, nor is another one that has its id.
func TestAttachEnded(t *testing.T) {
	child := exec.Command("sleep", "1000")
	require.NoError(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill() })
	fd, err := unix.PidfdOpen(child.Process.Pid, 0)
	require.NoError(t, err)
	a := &attachment{pid: child.Process.Pid, pidfd: fd, step: -1}
	a.windows.Store(&[]window{})
	buf := make([]byte, 8)
	require.ErrorIs(t, a.Read(buf, 64), unix.EFAULT)
	require.NoError(t, child.Process.Kill())
	_ = child.Wait()
	require.ErrorIs(t, a.Read(buf, 64), fabric.ErrPeerGone)
	require.ErrorIs(t, a.Write(buf, 64), fabric.ErrPeerGone)
	require.True(t, a.Ended())
	a.pid = os.Getpid()
	require.ErrorIs(t, a.Read(buf, fabric.Addr(make([]byte, 8))), fabric.ErrPeerGone)
	require.NoError(t, a.Close())
}

// Memory that is mapped here is read and written there, while the peer has the region, also behind the end of the
// endpoint's use of it.
func TestAttachMapped(t *testing.T) {
	x, y := pair(t, Options{}, fabric.EndpointOptions{})
	early, err := y.link.Alloc(1<<16, fabric.AccessAll)
	require.NoError(t, err)
	a := x.link.Attach(x).(*attachment)
	late, err := y.link.Alloc(1<<16, fabric.AccessAll)
	require.NoError(t, err)
	part, err := y.link.Register(late.Bytes()[:64], fabric.AccessAll)
	require.NoError(t, err)
	for _, r := range []fabric.Region{early, late} {
		copy(r.Bytes()[100:], "mapped")
		testutil.Eventually(t, testutil.Limit, func() bool {
			poll(t, x.link)
			mem, seg := a.mapped(r.Addr()+100, 6)
			if seg != nil {
				require.Equal(t, "mapped", string(mem))
				require.NoError(t, seg.release())
			}
			return seg != nil
		}, "the segment to be mapped")
		got := make([]byte, 6)
		require.NoError(t, a.Read(got, r.Addr()+100))
		require.Equal(t, "mapped", string(got))
		require.NoError(t, a.Write([]byte("stored"), r.Addr()+100))
		require.Equal(t, "stored", string(r.Bytes()[100:106]))
		for _, beyond := range [][2]uint64{{r.Addr() - 1, 2}, {r.Addr() + 1<<16 - 1, 2}, {r.Addr(), 1<<16 + 1}, {r.Addr() + 8, 1<<64 - 4}} {
			_, seg := a.mapped(beyond[0], beyond[1])
			require.Nil(t, seg)
		}
	}
	require.LessOrEqual(t, len(a.ctl.entries()), 8, "pages of the table are read that were never used")
	require.NoError(t, part.Close())
	at := late.Addr()
	require.NoError(t, late.Close())
	_, seg := a.mapped(at, 8)
	require.Nil(t, seg, "the peer may use the address for something else")
	require.NoError(t, x.Close())
	_, seg = a.mapped(early.Addr(), 8)
	require.Nil(t, seg)
	require.NoError(t, a.Close())
	require.NoError(t, early.Close())
}

//go:build linux && !rma_portable

package tcp

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
)

// piecesAllocate is why sending or receiving several pieces at once allocates, if it does.
const piecesAllocate = ""

// Layouts that the kernel reads.
func TestKernelLayouts(t *testing.T) {
	require.Equal(t, unsafe.Sizeof(unix.Iovec{}), unsafe.Sizeof(iovec{}))
	require.Equal(t, unsafe.Sizeof(unix.Msghdr{}), unsafe.Sizeof(msghdr{}))
	require.Equal(t, unsafe.Offsetof(unix.Msghdr{}.Iov), unsafe.Offsetof(msghdr{}.iov))
	require.Equal(t, unsafe.Offsetof(unix.Msghdr{}.Iovlen), unsafe.Offsetof(msghdr{}.iovlen))
}

func TestHotPathAllocatesNothing(t *testing.T) {
	a, b := pair(t, Config{}, 1<<20)
	key := b.reg.Key()
	for name, wr := range map[string]fabric.WR{
		"inline": a.write(0, 8, key, fabric.FlagSignaled|fabric.FlagInline),
		"small":  a.write(0, 64, key, fabric.FlagSignaled),
		"notify": a.write(0, 64, key, fabric.FlagSignaled|fabric.FlagNotify),
		"large":  a.write(0, 1<<20, key, fabric.FlagSignaled),
		"read":   {Op: fabric.OpRead, Local: a.sge(0, 4096), RemoteAddr: key.Addr, RKey: key.RKey, Flags: fabric.FlagSignaled},
		"fetch":  {Op: fabric.OpFetchAdd, Local: a.sge(0, 8), RemoteAddr: key.Addr, RKey: key.RKey, Flags: fabric.FlagSignaled},
	} {
		wrs := []fabric.WR{wr}
		var cs [4]fabric.Completion
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if n, err := a.ep.Post(wrs); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			for a.l.Poll(cs[:]) == 0 {
				b.l.Poll(cs[:])
			}
			if cs[0].Status != fabric.StatusOK {
				t.Fatal(cs[0].Err())
			}
		}), name)
	}
}

func TestLargeRequestsAllocateNothing(t *testing.T) {
	const size = 1 << 20
	a, b := pair(t, Config{Lanes: 2}, size)
	w := []fabric.WR{a.write(0, size, b.reg.Key(), fabric.FlagSignaled)}
	r := []fabric.WR{w[0]}
	r[0].Op = fabric.OpRead
	once := func() {
		for _, wrs := range [][]fabric.WR{w, r} {
			if n, err := a.ep.Post(wrs); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			for a.l.Poll(a.cs[:]) == 0 {
				b.l.Poll(b.cs[:])
			}
		}
	}
	once()
	require.Zero(t, testing.AllocsPerRun(20, once))
}

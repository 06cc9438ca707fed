package shm

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bulk"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/topo"
)

// Writes and reads of every way of copying, whole and in pieces of odd lengths, at odd
// places: all bytes arrive, none around them changes, the last word is a word.
func TestBulkWays(t *testing.T) {
	t.Parallel()
	for way, o := range map[string]Options{
		"stream": {StreamFrom: 4096, StringFrom: -1},
		"string": {StreamFrom: -1, StringFrom: 4096},
		"cached": {StreamFrom: -1, StringFrom: -1},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			const size = 256 << 10
			x, y := pair(t, o, fabric.EndpointOptions{})
			la, lb := alloc(t, x.link, size), alloc(t, y.link, size)
			for _, n := range []int{4096, 5000, 65536 + 63, 200_001} {
				for _, at := range []int{0, 8, 61} {
					for _, pieces := range []int{1, 2, 7} {
						for _, op := range []fabric.Op{fabric.OpWrite, fabric.OpRead} {
							name := fmt.Sprintf("%v of %d bytes at %d in %d pieces", op, n, at, pieces)
							mix(la.Bytes(), uint64(n+at))
							mix(lb.Bytes(), uint64(n+at+1))
							wr := fabric.WR{Op: op, RemoteAddr: lb.Addr() + uint64(at), RKey: lb.Key().RKey, Flags: fabric.FlagSignaled}
							from := la.Bytes()[3:]
							want := bytes.Clone(lb.Bytes())
							all, target := want, lb.Bytes()
							if op == fabric.OpRead {
								from = lb.Bytes()[at:]
								want = bytes.Clone(la.Bytes())
								all, target = want, la.Bytes()
								copy(all[3:], from[:n])
							} else {
								copy(all[at:], from[:n])
							}
							for i := range pieces {
								a, b := i*n/pieces, (i+1)*n/pieces
								wr.Local = append(wr.Local, fabric.SGE{Addr: la.Addr() + 3 + uint64(a), Len: uint32(b - a), LKey: la.LKey()})
							}
							k, err := x.Post([]fabric.WR{wr})
							require.NoError(t, err, name)
							require.Equal(t, 1, k, name)
							require.True(t, bytes.Equal(all, target), name)
							var cs [4]fabric.Completion
							for n := 0; n == 0; {
								n = x.link.Poll(cs[:])
							}
							require.NoError(t, cs[0].Err(), name)
						}
					}
				}
			}
		})
	}
}

// mix fills b with bytes that tell where they stand.
func mix(b []byte, seed uint64) {
	for i := range b {
		b[i] = byte((uint64(i) + seed) * 0x9e3779b97f4a7c15 >> 56)
	}
}

func TestCopiesFollowCachesAndUsers(t *testing.T) {
	t.Parallel()
	l := &link{}
	l.copies.cache = topo.Cache{Level: 3, Size: 32 << 20, CPUs: cpu.Of(0, 1, 2, 3, 4, 5, 6, 7)}
	base := bulk.Plan{String: 48 << 10, Stream: 8 << 20}
	l.SetCopies(base, "measured")
	require.Equal(t, fabric.CopyChoice{
		Plan: base, Kernel: bulk.Kernel(), Source: "measured", Cache: 32 << 20, Users: 0,
	}, l.Copies())
	l.copies.users = 4
	l.SetCopies(base, "measured")
	require.EqualValues(t, 4<<20, l.Copies().Plan.Stream, "twice the users, half the size")
	l.copies.users = 800
	l.SetCopies(base, "measured")
	require.EqualValues(t, 2<<20, l.Copies().Plan.Stream, "no more at a time than processors")
	require.EqualValues(t, 48<<10, l.copies.from.Load())

	l.opts = Options{StreamFrom: 1 << 20, StringFrom: -1}
	l.SetCopies(base, "measured")
	require.Equal(t, bulk.Plan{String: bulk.Never, Stream: 1 << 20}, l.Copies().Plan)
	require.Equal(t, "forced", l.Copies().Source)
	require.EqualValues(t, 1<<20, l.copies.from.Load())

	l.opts.StringFrom = 0
	require.Equal(t, "measured, one of them forced", l.Copies().Source)

	l.opts = Options{}
	l.SetCopies(bulk.Plan{String: bulk.Never, Stream: bulk.Never}, "measured")
	require.Equal(t, bulk.Plan{String: bulk.Never, Stream: bulk.Never}, l.Copies().Plan)
}

// Every connection counts as a user of the cache while it is up.
func TestUsersAreCounted(t *testing.T) {
	t.Parallel()
	x, y := pair(t, Options{}, fabric.EndpointOptions{})
	require.Equal(t, 2, x.link.Copies().Users)
	require.NoError(t, x.Close())
	require.Equal(t, 1, x.link.Copies().Users)
	require.NotNil(t, y)
}

func TestNear(t *testing.T) {
	t.Parallel()
	x, y := pair(t, Options{}, fabric.EndpointOptions{})
	v := x.Near()
	require.Equal(t, v, y.Near(), "the same from both sides")
	require.Equal(t, topo.Local().Between(cpu.Allowed(), cpu.Allowed()).String(), v.Class)
	if v.Reason == "" {
		require.Equal(t, "process_vm", v.Private)
	} else {
		require.Equal(t, "bounce", v.Private)
	}
	x, _ = pair(t, Options{DisableCMA: true}, fabric.EndpointOptions{})
	require.Equal(t, fabric.Vicinity{Class: v.Class, Private: "bounce", Reason: "disabled by configuration"}, x.Near())
}

func TestPublishCPUs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ list, want string }{{"", ""}, {"0-1", "0-1"}, {"3,63-65,4095", "3,63-65,4095"}, {"0,4096", ""}} {
		on, err := cpu.ParseSet(c.list)
		require.NoError(t, err)
		var hdr ctlHeader
		hdr.publishCPUs(on)
		require.Equal(t, c.want, hdr.allowedCPUs().String())
	}
	var hdr ctlHeader
	for i := range hdr.cpus {
		hdr.cpus[i].Store(1<<64 - 1) // a peer may say anything
	}
	require.Equal(t, maxCPUs, hdr.allowedCPUs().Len())
}

func TestSplitTail(t *testing.T) {
	t.Parallel()
	iov := func(at uint64, n int) unix.RemoteIovec { return unix.RemoteIovec{Base: uintptr(at), Len: n} }
	for _, c := range []struct {
		size, n, tail uint64
		want          []unix.RemoteIovec
	}{
		{100, 100, 8, []unix.RemoteIovec{iov(1000, 92), iov(1092, 8)}},
		{100, 100, 0, []unix.RemoteIovec{iov(1000, 100)}},
		{92, 100, 8, []unix.RemoteIovec{iov(1000, 92)}},
		{60, 100, 8, []unix.RemoteIovec{iov(1000, 60)}},
		{95, 100, 8, []unix.RemoteIovec{iov(1000, 92), iov(1092, 3)}},
		{8, 8, 8, []unix.RemoteIovec{iov(1000, 8)}},
		{3, 3, 8, []unix.RemoteIovec{iov(1000, 3)}},
		{9, 9, 8, []unix.RemoteIovec{iov(1000, 1), iov(1001, 8)}},
	} {
		var got [2]unix.RemoteIovec
		k := splitTail(&got, 1000, c.size, c.n, c.tail)
		require.Equal(t, c.want, got[:k], "%+v", c)
	}
}

// What the kernel says is told so that somebody can do something about it.
func TestRefusalsOfCMA(t *testing.T) {
	t.Parallel()
	require.Contains(t, refusalCMA("process_vm_readv", -1, unix.EPERM), "ptrace_scope")
	require.Contains(t, refusalCMA("process_vm_readv", -1, unix.ENOSYS), "seccomp")
	require.Contains(t, refusalCMA("process_vm_writev", 3, nil), "3 bytes")
	require.Contains(t, refusalCMA("process_vm_writev", -1, unix.ESRCH), "no such process")
	require.Contains(t, new(cma).probe(0), "namespace")
}

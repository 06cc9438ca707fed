package softlink

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
)

// scratch returns off-heap memory for the test: SGEs carry addresses, and a Go
// slice on a stack moves when the stack grows.
func scratch(t *testing.T, n int) []byte {
	b, err := offheap.Alloc(n, offheap.Scratch)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, offheap.Free(b, offheap.Scratch)) })
	return b
}

func TestKeyTable(t *testing.T) {
	var kt KeyTable
	e, err := kt.Add(0x1000, 0x100, fabric.AccessRemoteRead|fabric.AccessRemoteWrite)
	require.NoError(t, err)
	require.NotZero(t, e.Key)
	type probe struct {
		key     uint32
		addr, n uint64
		need    fabric.Access
		want    bool
	}
	const top = ^uint64(0)
	for _, p := range []probe{
		{e.Key, 0x1000, 0x100, fabric.AccessRemoteRead, true},
		{e.Key, 0x10ff, 1, fabric.AccessRemoteWrite, true},
		{e.Key, 0x1100, 0, fabric.AccessRemoteWrite, true},
		{e.Key, 0x1000, 0x101, fabric.AccessRemoteRead, false},
		{e.Key, 0x0fff, 1, fabric.AccessRemoteRead, false},
		{e.Key, 0x1101, 0, fabric.AccessRemoteRead, false},
		{e.Key, 0x1080, top, fabric.AccessRemoteRead, false},
		{e.Key, top, 2, fabric.AccessRemoteRead, false},
		{e.Key, 0, top, fabric.AccessRemoteRead, false},
		{e.Key, 0x1000, 8, fabric.AccessRemoteAtomic, false},
		{e.Key, 0x1000, 8, fabric.AccessRemoteRead | fabric.AccessRemoteAtomic, false},
		{e.Key ^ 1<<31, 0x1000, 8, fabric.AccessRemoteRead, false},
		{e.Key ^ 1, 0x1000, 8, fabric.AccessRemoteRead, false},
		{0, 0x1000, 8, 0, false},
	} {
		require.Equal(t, p.want, kt.Allows(p.key, p.addr, p.n, p.need), "%+v", p)
	}
	require.True(t, kt.Remove(e.Key))
	require.False(t, kt.Remove(e.Key))
	require.False(t, kt.Allows(e.Key, 0x1000, 8, 0), "stale key")
	require.Zero(t, kt.Live())
}

func TestKeyTableFillsAndReuses(t *testing.T) {
	var kt KeyTable
	seen := map[uint32]bool{}
	var keys []uint32
	for range MaxRegions {
		e, err := kt.Add(1<<20, 8, fabric.AccessAll)
		require.NoError(t, err)
		require.False(t, seen[e.Key])
		seen[e.Key] = true
		keys = append(keys, e.Key)
	}
	_, err := kt.Add(1<<20, 8, 0)
	require.ErrorIs(t, err, ErrTooManyRegions)
	require.True(t, kt.Remove(keys[7]))
	e, err := kt.Add(1<<21, 8, fabric.AccessAll)
	require.NoError(t, err)
	require.NotEqual(t, keys[7], e.Key)
	require.Equal(t, keys[7]&indexMask, e.Key&indexMask)
	require.False(t, kt.Allows(keys[7], 1<<21, 8, 0))
	require.True(t, kt.Allows(e.Key, 1<<21, 8, fabric.AccessAll))
}

func TestCheckShape(t *testing.T) {
	caps := &fabric.Caps{MaxInline: 16, MaxMessage: 1000}
	sge := func(n uint32) []fabric.SGE { return []fabric.SGE{{Addr: 4096, Len: n}} }
	ok := []fabric.WR{
		{Op: fabric.OpWrite},
		{Op: fabric.OpWrite, Local: sge(1000), Flags: fabric.FlagNotify},
		{Op: fabric.OpWrite, Local: sge(16), Flags: fabric.FlagInline},
		{Op: fabric.OpRead, Local: sge(5), RemoteAddr: 3},
		{Op: fabric.OpFetchAdd, Local: sge(8), RemoteAddr: 16},
	}
	for i := range ok {
		require.Empty(t, CheckShape(&ok[i], caps), "%+v", ok[i])
	}
	bad := []fabric.WR{
		{},
		{Op: fabric.OpDown},
		{Op: 200},
		{Op: fabric.OpWrite, Local: sge(17), Flags: fabric.FlagInline},
		{Op: fabric.OpWrite, Local: sge(1001)},
		{Op: fabric.OpWrite, Local: []fabric.SGE{{Len: 1 << 31}, {Len: 1 << 31}}},
		{Op: fabric.OpRead, Local: sge(5), Flags: fabric.FlagNotify},
		{Op: fabric.OpRead, Local: sge(5), Flags: fabric.FlagInline},
		{Op: fabric.OpFetchAdd, Local: sge(8), RemoteAddr: 12},
		{Op: fabric.OpFetchAdd, Local: sge(4), RemoteAddr: 16},
		{Op: fabric.OpCompareSwap, RemoteAddr: 16},
		{Op: fabric.OpCompareSwap, Local: sge(8), Flags: fabric.FlagNotify},
	}
	for i := range bad {
		require.NotEmpty(t, CheckShape(&bad[i], caps), "%+v", bad[i])
	}
}

func TestCompQKeepsOrderAcrossGrowth(t *testing.T) {
	var q CompQ
	require.False(t, q.Push(fabric.Completion{}))
	q.Reserve(10)
	var next, want uint64
	cs := make([]fabric.Completion, 7)
	for round := range 200 {
		for q.Free() > 0 {
			next++
			require.True(t, q.Push(fabric.Completion{ID: next}))
		}
		if round%50 == 0 {
			q.Reserve(100)
		}
		for _, c := range cs[:q.Pop(cs)] {
			want++
			require.Equal(t, want, c.ID)
		}
	}
	for q.Len() > 0 {
		for _, c := range cs[:q.Pop(cs)] {
			want++
			require.Equal(t, want, c.ID)
		}
	}
	require.Equal(t, next, want)
}

func TestMove(t *testing.T) {
	src := scratch(t, 300)
	for i := range src {
		src[i] = byte(i*7 + i>>8)
	}
	sgl := []fabric.SGE{fabric.NewSGE(src[:100], 0), {}, fabric.NewSGE(src[100:101], 0), fabric.NewSGE(src[101:300], 0)}
	dst := make([]byte, 310)
	require.Equal(t, 300, Gather(dst, sgl))
	require.Equal(t, src, dst[:300])
	require.Equal(t, 150, Gather(dst[:150], sgl))
	back := scratch(t, 300)
	out := []fabric.SGE{fabric.NewSGE(back[:33], 0), fabric.NewSGE(back[33:250], 0)}
	require.Equal(t, 250, Scatter(out, src))
	require.Equal(t, src[:250], back[:250])
	require.Equal(t, make([]byte, 50), back[250:])
	require.Equal(t, 40, Scatter(out, src[:40]))
}

func TestAtomics(t *testing.T) {
	m := scratch(t, 16)
	a := fabric.Addr(m) + 8
	Store64(a, ^uint64(0))
	require.Equal(t, ^uint64(0), FetchAdd(a, 3), "wraps")
	require.Equal(t, uint64(2), Load64(a))
	require.Equal(t, uint64(2), CompareSwap(a, 1, 9), "miss")
	require.Equal(t, uint64(2), CompareSwap(a, 2, 0x0102030405060708), "hit")
	require.Equal(t, []byte{0, 0, 0, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1}, m)
}

func TestHotPathAllocatesNothing(t *testing.T) {
	var kt KeyTable
	buf := scratch(t, 64)
	e, err := kt.Add(fabric.Addr(buf), 64, fabric.AccessAll)
	require.NoError(t, err)
	var q CompQ
	q.Reserve(1)
	caps := &fabric.Caps{MaxMessage: 100}
	wr := &fabric.WR{Op: fabric.OpWrite, Local: []fabric.SGE{fabric.NewSGE(buf, e.Key)}}
	cs := make([]fabric.Completion, 1)
	dst := make([]byte, 64)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if CheckShape(wr, caps) != "" || !kt.CheckLocal(wr) || Gather(dst, wr.Local) != 64 || !q.Push(fabric.Completion{}) || q.Pop(cs) != 1 {
			t.Fatal("unexpected")
		}
	}))
}

func BenchmarkAllows(b *testing.B) {
	var kt KeyTable
	e, _ := kt.Add(4096, 4096, fabric.AccessAll)
	for b.Loop() {
		if !kt.Allows(e.Key, 5000, 8, fabric.AccessRemoteWrite) {
			b.Fatal("refused")
		}
	}
}

// Keys that another link gives: a local one and one for peers, which regions without rights of peers need not have.
func TestNames(t *testing.T) {
	x := NewNames()
	k := KeyTable{Named: x}
	require.NoError(t, x.Add(4096, 64, fabric.AccessAll, 7, 8))
	require.NoError(t, x.Add(8192, 64, fabric.AccessLocalWrite, 9, 0))
	require.NoError(t, x.Add(16384, 64, 0, 8, 0)) // the local key may be another region's for peers
	for _, taken := range [][2]uint32{{7, 10}, {10, 8}} {
		require.ErrorIs(t, x.Add(4096, 64, fabric.AccessAll, taken[0], taken[1]), ErrKeyTaken)
	}
	for _, c := range []struct {
		key, lo     uint32
		local, peer bool
	}{{7, 4096, true, false}, {8, 4096, false, true}, {9, 8192, true, false}, {8, 16384, true, false}, {0, 8192, false, false}} {
		require.Equal(t, c.local, k.AllowsLocal(c.key, uint64(c.lo), 64, 0), c)
		require.Equal(t, c.peer, k.Allows(c.key, uint64(c.lo), 64, 0), c)
	}
	require.False(t, k.Allows(8, 4096, 65, 0))
	require.False(t, k.AllowsLocal(8, 16384, 8, fabric.AccessLocalWrite))
	x.Remove(9, 0)
	require.False(t, k.AllowsLocal(9, 8192, 8, 0))
	x.Remove(7, 8)
	require.False(t, k.Allows(8, 4096, 8, 0))
	require.True(t, k.AllowsLocal(8, 16384, 8, 0))
	own := x.AddNew(4096, 64, fabric.AccessAll)
	require.True(t, k.Allows(own, 4096, 64, fabric.AccessRemoteRead) && k.AllowsLocal(own, 4096, 64, 0))
}

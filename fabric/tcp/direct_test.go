//go:build linux

package tcp

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
)

// own returns a host and the other end of its connection with itself.
func own(t *testing.T) (*host, *endpoint) {
	h := newHost(t, Config{}, fabric.EndpointOptions{ID: 1}, 4096)
	ep, err := h.l.NewEndpoint(fabric.EndpointOptions{ID: 2})
	require.NoError(t, err)
	join(t, h, &host{tb: t, l: h.l, ep: ep.(*endpoint)})
	until(t, "both ends", func() bool { return h.ep.twin != nil }, h)
	return h, ep.(*endpoint)
}

// Requests of a process to itself are executed in the call, with the checks of a target and
// without a frame.
func TestDirect(t *testing.T) {
	h, twin := own(t)
	require.Same(t, twin, h.ep.twin)
	require.Same(t, h.ep, twin.twin)
	heard, mem, k := h.l.Served(), h.reg.Bytes(), h.reg.Key()
	for i := range mem[:1024] {
		mem[i] = byte(i*7 + i>>8)
	}
	for _, n := range []int{1, 7, 8, 24, 1000} {
		w := h.write(3, n, k, 0)
		w.RemoteAddr = k.Addr + 2048
		require.True(t, h.ep.Do(&w), "%d bytes", n)
		require.Equal(t, mem[3:3+n], mem[2048:2048+n])
		require.Zero(t, mem[2048+n])
		clear(mem[2048:])
	}
	word := func(at int) uint64 { return binary.NativeEndian.Uint64(mem[at:]) }
	op := func(op fabric.Op, at int) *fabric.WR {
		return &fabric.WR{Op: op, Local: h.sge(0, 8), RemoteAddr: k.Addr + uint64(at), RKey: k.RKey, Compare: 5, Operand: 9}
	}
	binary.NativeEndian.PutUint64(mem[2048:], 5)
	require.True(t, h.ep.Do(op(fabric.OpRead, 2048)))
	require.Equal(t, uint64(5), word(0))
	require.True(t, h.ep.Do(op(fabric.OpCompareSwap, 2048)))
	require.True(t, h.ep.Do(op(fabric.OpFetchAdd, 2048)))
	require.Equal(t, []uint64{9, 18}, []uint64{word(0), word(2048)})

	readable, err := h.l.Alloc(64, fabric.AccessRemoteRead)
	require.NoError(t, err)
	r := readable.Key()
	require.Len(t, h.ep.Reach(fabric.AccessRemoteRead, r.RKey, r.Addr, 64), 64)
	h.ep.Stored(false)
	require.NoError(t, readable.Close())

	// What cannot be done at once is left alone.
	before := append([]byte(nil), mem...)
	foreign, outside, local, rights := op(fabric.OpWrite, 0), op(fabric.OpWrite, 4090), op(fabric.OpRead, 0), op(fabric.OpWrite, 0)
	foreign.RKey ^= 1 << 20
	local.Local[0].LKey ^= 1 << 20
	rights.RemoteAddr, rights.RKey = r.Addr, r.RKey
	none, empty := op(fabric.OpWrite, 0), op(fabric.OpWrite, 0)
	none.Local, empty.Local[0].Len = nil, 0
	for what, wr := range map[string]*fabric.WR{
		"key": foreign, "bounds": outside, "local key": local, "withdrawn": rights, "no pieces": none, "no bytes": empty,
		"alignment": op(fabric.OpFetchAdd, 4), "op": op(fabric.OpNotify, 0),
	} {
		require.False(t, h.ep.Do(wr), what)
	}
	require.Nil(t, h.ep.Reach(fabric.AccessRemoteWrite, k.RKey, k.Addr+4090, 8))
	require.Nil(t, h.ep.Local(0, local.Local[0]))
	require.Equal(t, before, mem)
	for range 100 {
		h.poll()
	}
	require.Equal(t, heard, h.l.Served(), "frames")
	require.Empty(t, h.got)
	w := op(fabric.OpWrite, 2048)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if !h.ep.Do(w) {
			t.Fatal("refused")
		}
	}))
	require.NoError(t, twin.Close())
	require.False(t, h.ep.Do(op(fabric.OpWrite, 0)), "closed")
}

// What is done at once does not overtake what was posted, and a connection with another
// process's link is not direct.
func TestDirectKeepsOrder(t *testing.T) {
	h, _ := own(t)
	w := h.write(0, 8, h.reg.Key(), fabric.FlagSignaled)
	n, err := h.ep.Post([]fabric.WR{w})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.False(t, h.ep.Do(&w))
	require.Nil(t, h.ep.Reach(fabric.AccessRemoteWrite, w.RKey, w.RemoteAddr, 8))
	until(t, "completion", func() bool { return len(h.got) == 1 }, h)
	require.True(t, h.ep.Do(&w))

	a, b := pair(t, Config{}, 4096)
	until(t, "adopted", func() bool { return a.ep.adopted && b.ep.adopted }, a, b)
	w = a.write(0, 8, b.reg.Key(), 0)
	require.False(t, a.ep.Do(&w))
}

// A region is not closed, and its memory not freed, while its owner's process uses it, whichever call of
// Close says so.
func TestCloseWaitsForDirectAccess(t *testing.T) {
	h, _ := own(t)
	reg, err := h.l.Alloc(4096, fabric.AccessAll)
	require.NoError(t, err)
	k := reg.Key()
	mem := h.ep.Reach(fabric.AccessRemoteWrite, k.RKey, k.Addr, 4096)
	require.NotNil(t, mem)
	const calls = 4
	closed := make(chan error, calls)
	go func() { closed <- reg.Close() }()
	until(t, "key withdrawn", func() bool { return !h.l.keys.Allows(k.RKey, k.Addr, 8, 0) })
	for range calls - 1 {
		go func() { closed <- reg.Close() }()
	}
	for range 20 { // the other calls get their turn
		runtime.Gosched()
	}
	mem[4095] = 1 // would fault
	require.Nil(t, h.ep.Reach(fabric.AccessRemoteWrite, k.RKey, k.Addr, 8))
	early := len(closed)
	h.ep.Stored(false)
	require.Zero(t, early)
	for range calls {
		require.NoError(t, <-closed)
	}
}

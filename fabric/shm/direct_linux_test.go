package shm

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestDirect(t *testing.T) {
	t.Parallel()
	x, y := pair(t, Options{}, fabric.EndpointOptions{ID: 1})
	src, dst := alloc(t, x.link, 4096), alloc(t, y.link, 4096)
	k := dst.Key()
	here, there := src.Bytes(), dst.Bytes()
	for i := range here {
		here[i] = byte(i*7 + i>>8)
	}
	for _, n := range []int{1, 7, 8, 24, 100, 4000} {
		w := write(src, 3, n, k, 64)
		require.True(t, x.Do(&w), "%d bytes", n)
		require.Equal(t, here[3:3+n], there[64:64+n])
		require.Zero(t, there[64+n])
		clear(there)
	}
	word := func(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }
	op := func(op fabric.Op, at uint64) *fabric.WR {
		return &fabric.WR{Op: op, Local: []fabric.SGE{fabric.NewSGE(here[:8], src.LKey())}, RemoteAddr: k.Addr + at, RKey: k.RKey, Compare: 5, Operand: 9}
	}
	binary.NativeEndian.PutUint64(there[8:], 5)
	require.True(t, x.Do(op(fabric.OpRead, 8)))
	require.Equal(t, uint64(5), word(here))
	require.True(t, x.Do(op(fabric.OpCompareSwap, 8)))
	require.True(t, x.Do(op(fabric.OpFetchAdd, 8)))
	require.Equal(t, []uint64{9, 18}, []uint64{word(here), word(there[8:])})

	mem := x.Reach(fabric.AccessRemoteWrite, k.RKey, k.Addr+16, 16)
	require.Len(t, mem, 16)
	copy(mem, "sixteen bytes ..")
	x.Stored(false)
	require.Equal(t, "sixteen bytes ..", string(there[16:32]))

	require.Equal(t, there[16:32], x.Reach(fabric.AccessRemoteRead|fabric.AccessRemoteAtomic, k.RKey, k.Addr+16, 16))
	require.Equal(t, here[:24], x.Local(fabric.AccessLocalWrite, fabric.NewSGE(here[:24], src.LKey())))
	readable, err := y.link.Alloc(64, fabric.AccessRemoteRead)
	require.NoError(t, err)
	r := readable.Key()
	require.Len(t, x.Reach(fabric.AccessRemoteRead, r.RKey, r.Addr, 64), 64)
	require.Nil(t, x.Reach(fabric.AccessRemoteWrite, r.RKey, r.Addr, 64), "rights")
	require.NoError(t, readable.Close())

	// What cannot be done at once is left alone, and the endpoint as well.
	before := append([]byte(nil), there...)
	foreign, outside, local := op(fabric.OpWrite, 0), op(fabric.OpWrite, 4090), op(fabric.OpRead, 0)
	foreign.RKey ^= 1 << 20
	local.Local[0].LKey ^= 1 << 20
	none := op(fabric.OpWrite, 0)
	none.Local = nil
	empty := op(fabric.OpWrite, 0)
	empty.Local[0].Len = 0
	for what, wr := range map[string]*fabric.WR{
		"key": foreign, "bounds": outside, "local key": local, "no pieces": none, "no bytes": empty,
		"alignment": op(fabric.OpFetchAdd, 4), "op": op(fabric.OpNotify, 0),
	} {
		require.False(t, x.Do(wr), what)
	}
	require.Nil(t, x.Reach(fabric.AccessRemoteWrite, foreign.RKey, k.Addr, 8))
	require.Nil(t, x.Reach(fabric.AccessRemoteWrite, k.RKey, k.Addr+4090, 8))
	require.Nil(t, x.Reach(fabric.AccessRemoteWrite, k.RKey, k.Addr, 0))
	require.Nil(t, x.Local(0, local.Local[0]))
	require.Nil(t, x.Local(0, fabric.SGE{Addr: fabric.Addr(here) + 8, Len: uint32(len(here)), LKey: src.LKey()}))
	require.Equal(t, before, there)
	require.True(t, x.isUp())
	require.NoError(t, dst.Close())
	require.False(t, x.Do(op(fabric.OpWrite, 0)), "withdrawn")
	require.Nil(t, x.Reach(fabric.AccessRemoteWrite, k.RKey, k.Addr, 8))
	require.True(t, x.isUp())
	require.NoError(t, y.Close())
	require.NoError(t, x.Close())
	require.False(t, x.Do(op(fabric.OpWrite, 0)), "closed")
	require.Nil(t, x.Reach(fabric.AccessRemoteWrite, k.RKey, k.Addr, 8))
	x.Stored(false)
}

// Requests that wait keep their place before what could be done at once.
func TestDirectKeepsOrder(t *testing.T) {
	t.Parallel()
	x, y := pair(t, Options{DisableCMA: true}, fabric.EndpointOptions{ID: 1})
	src, mapped, private := alloc(t, x.link, 4096), alloc(t, y.link, 4096), register(t, y.link, 4096)
	w := write(src, 0, 8, mapped.Key(), 0)
	require.True(t, x.Do(&w))
	far := write(src, 0, 8, private.Key(), 0)
	require.False(t, x.Do(&far), "the peer has to help")
	post(t, x, far)
	require.False(t, x.Do(&w))
	require.Nil(t, x.Reach(fabric.AccessRemoteWrite, w.RKey, w.RemoteAddr, 8))
	require.Equal(t, fabric.StatusOK, await(t, x.link, y.link).Status)
	require.True(t, x.Do(&w))
}

func TestDirectWakesASleeper(t *testing.T) {
	x, y := pair(t, Options{}, fabric.EndpointOptions{ID: 1})
	src, dst := alloc(t, x.link, 4096), alloc(t, y.link, 4096)
	w := write(src, 0, 16, dst.Key(), 0)
	for how, do := range map[string]func(){
		"Do": func() { require.True(t, x.Do(&w)) },
		"Reach": func() {
			require.Len(t, x.Reach(fabric.AccessRemoteWrite, w.RKey, w.RemoteAddr, 8), 8)
			x.Stored(false)
		},
	} {
		quiet, err := y.link.Arm()
		require.NoError(t, err)
		require.True(t, quiet, how)
		do()
		require.True(t, readable(t, y.link, testutil.Limit), how)
		y.link.Disarm()
		poll(t, y.link)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if !x.Do(&w) || x.Reach(fabric.AccessRemoteWrite, w.RKey, w.RemoteAddr, 8) == nil {
			t.Fatal("refused")
		}
		x.Stored(false)
	}))
}

package ibv

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
)

// The pieces of a split read cover it exactly; each is at most one packet, and only the
// last completes.
func TestCutCoversTheRead(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		maxSGE := 1 + rng.IntN(5)
		e := &endpoint{l: &Link{adapter: adapter{caps: fabric.Caps{MaxSGE: maxSGE}}}, slots: make([]slot, 64), depth: 64, guarded: true, packet: 256}
		s := &e.split
		type span struct{ local, remote uint64 }
		var want, got []span
		remote := uint64(1 << 30)
		for range 1 + rng.IntN(12) {
			n := rng.IntN(900) * rng.IntN(2)
			p := fabric.SGE{Addr: rng.Uint64() >> 20, Len: uint32(n), LKey: 7}
			s.list = append(s.list, p)
			for k := range uint64(n) {
				want = append(want, span{p.Addr + k, remote})
				remote++
			}
		}
		op := []fabric.Op{fabric.OpRead, fabric.OpWrite}[rng.IntN(2)]
		s.wr = fabric.WR{ID: 9, Op: op, RemoteAddr: 1 << 30, RKey: 5, Flags: fabric.FlagSignaled}
		s.left = uint64(len(want))
		for s.left > 0 {
			l := e.l
			l.staged, l.spared = 0, 0
			require.True(t, e.cut())
			d := l.wrs[0]
			require.NotEmpty(t, d.SGL)
			require.LessOrEqual(t, len(d.SGL), maxSGE)
			at, n := d.RemoteAddr, uint64(0)
			for _, p := range d.SGL {
				require.NotZero(t, p.Len)
				for k := range uint64(p.Len) {
					got = append(got, span{p.Addr + k, at})
					at++
				}
				n += uint64(p.Len)
			}
			require.LessOrEqual(t, n, e.piece(op))
			require.Equal(t, op, e.slots[(e.tail-1)&e.mask()].op)
			require.Equal(t, s.left > 0, e.slots[(e.tail-1)&e.mask()].flags&slotMore != 0)
			e.head = e.tail
		}
		require.Equal(t, want, got)
	}
}

func TestLostResultIsNoticed(t *testing.T) {
	mem := make([]byte, 64)
	binary.NativeEndian.PutUint64(mem[8:], 77)
	l := &Link{regions: map[*region]struct{}{}}
	r := &region{mem: mem, lkey: 3, access: fabric.AccessAll, key: fabric.RemoteKey{Addr: 1000, Len: 64}}
	l.regions[r] = struct{}{}
	e := &endpoint{l: l, guarded: true, poisonWord: 0xabc}
	w := fabric.WR{Op: fabric.OpFetchAdd, Local: []fabric.SGE{{Addr: 1008, Len: 8, LKey: 3}}}
	var s slot
	e.poison(&w, &s)
	require.True(t, e.lost(&s), "nothing came")
	e.cure()
	require.Equal(t, uint64(77), binary.NativeEndian.Uint64(mem[8:]), "a failed atomic leaves no trace")
	s = slot{}
	e.poison(&w, &s)
	binary.NativeEndian.PutUint64(mem[8:], 5)
	require.False(t, e.lost(&s))
	e.cure()
	require.Equal(t, uint64(5), binary.NativeEndian.Uint64(mem[8:]))
	for name, p := range map[string]fabric.SGE{"key": {Addr: 1008, Len: 8, LKey: 4}, "end": {Addr: 1060, Len: 8, LKey: 3}, "start": {Addr: 996, Len: 8, LKey: 3}} {
		s = slot{}
		e.poison(&fabric.WR{Op: fabric.OpFetchAdd, Local: []fabric.SGE{p}}, &s)
		require.Zero(t, s.flags, name)
		require.Nil(t, e.cell, name)
	}
}

func guardedPair(t *testing.T) (a, b *side) {
	guard := true
	a, b = pairOf(t, Options{Guard: &guard}, fabric.EndpointOptions{Depth: 64})
	require.True(t, a.ep.guarded)
	return a, b
}

// A read of more packets than the queue has slots, while the queue fills up.
func TestGuardedReadOfManyPackets(t *testing.T) {
	a, b := guardedPair(t)
	testutil.Fill(b.mem.Bytes(), 3, 0)
	clear(a.mem.Bytes())
	w := a.write(b, 0, fabric.FlagSignaled)
	w.Op, w.ID, w.Local = fabric.OpRead, 5, nil
	for _, n := range []int{1, 70_000, 0, 300_000, 600_000} { // the last takes at least 237 packets
		at := int(w.Len())
		w.Local = append(w.Local, fabric.NewSGE(a.mem.Bytes()[at:at+n], a.mem.LKey()))
	}
	n, err := a.ep.Post([]fabric.WR{w, w})
	require.NoError(t, err)
	require.Equal(t, 1, n, "there is one at a time")
	c := a.wait()
	require.Equal(t, []fabric.Completion{{ID: 5, EP: a.ep.id, Op: fabric.OpRead}}, c)
	require.NoError(t, testutil.Verify(a.mem.Bytes()[:970_001], 3, 0))
	require.Zero(t, a.l.splitting)
}

// A read whose endpoint is closed in the middle is reported once, as flushed.
func TestGuardedReadIsFlushedOnce(t *testing.T) {
	a, b := guardedPair(t)
	w := a.write(b, 1<<20, fabric.FlagSignaled)
	w.Op, w.ID = fabric.OpRead, 6
	n, err := a.ep.Post([]fabric.WR{w})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NotZero(t, a.ep.split.left)
	require.NoError(t, a.ep.Close())
	c := a.wait()
	require.Equal(t, []fabric.Completion{{ID: 6, EP: a.ep.id, Op: fabric.OpRead, Status: fabric.StatusFlushed}}, c)
	require.Zero(t, a.l.splitting)
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); cpu.Yield() { // deadline: nothing may come meanwhile
		require.Zero(t, a.l.Poll(a.cs[:]))
	}
}

// Empty requests consume no receives visible to the target.
func TestGuardedEmptyRequests(t *testing.T) {
	a, b := guardedPair(t)
	for i := range 3 * b.ep.recvs {
		w := a.write(b, 0, fabric.FlagSignaled)
		w.ID, w.Op = uint64(i), []fabric.Op{fabric.OpWrite, fabric.OpRead}[i%2]
		n, err := a.ep.Post([]fabric.WR{w})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		c := a.wait(b)
		require.Equal(t, []fabric.Completion{{ID: uint64(i), EP: a.ep.id, Op: w.Op}}, c)
	}
	w := a.write(b, 0, fabric.FlagNotify)
	w.Imm = 4711
	_, err := a.ep.Post([]fabric.WR{w})
	require.NoError(t, err)
	c := b.wait()
	require.Equal(t, fabric.OpNotify, c[0].Op)
	require.Equal(t, uint32(4711), c[0].Imm)
}

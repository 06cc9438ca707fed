//go:build linux

package verbs_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/verbs"
)

func TestDeviceAttributes(t *testing.T) {
	name, _ := deviceNames(t)
	ds, err := verbs.Devices()
	require.NoError(t, err)
	var d verbs.Device
	for _, x := range ds {
		if x.Name == name {
			d = x
		}
	}
	require.Equal(t, name, d.Name)
	for _, n := range d.NetDevs {
		got, err := verbs.DeviceForNetDev(n)
		require.NoError(t, err)
		require.Equal(t, name, got)
	}
	e := newEnd(t, name)
	t.Logf("%+v", d)
	t.Logf("%+v", e.dev)
	t.Logf("%+v", e.port)
	require.Positive(t, e.dev.MaxSGE)
	require.Positive(t, e.dev.MaxQPWR)
	require.Equal(t, verbs.PortActive, e.port.State)
	require.True(t, e.port.ActiveMTU.Valid())
	require.NotEmpty(t, e.gid.NetDev)
	pk, err := e.ctx.PKey(1, 0)
	require.NoError(t, err)
	require.NotZero(t, pk)
	_, err = e.ctx.QueryPort(77)
	require.Error(t, err)
}

func TestWriteGathers(t *testing.T) {
	a, b := pair(t)
	pattern(a.mem, 1)
	for _, n := range []int{0, 1, 2, 3, 8, 31, 32} {
		for _, off := range []int{0, 3, 4093} {
			var sgl []verbs.SGE
			var want []byte
			for i := range n {
				o, l := i*8192+i, 1+i*131%4999
				sgl = append(sgl, a.mr.SGE(o, l))
				want = append(want, a.mem[o:o+l]...)
			}
			expect(t, b.mem[:len(want)+8192], off, want, func() {
				a.post(verbs.SendWR{ID: uint64(n), Op: verbs.OpWrite, SGL: sgl, RemoteAddr: b.mr.Addr() + uint64(off), RKey: b.mr.RKey(), Flags: verbs.SendSignaled})
				a.ok(verbs.WCWrite, uint64(n))
			})
		}
	}
	n, err := a.qp.PostSend([]verbs.SendWR{{Op: verbs.OpWrite}, {Op: verbs.OpWrite, SGL: make([]verbs.SGE, a.qp.Cap().MaxSendSGE+1)}})
	var pe *verbs.PostError
	require.True(t, errors.As(err, &pe), "%v", err)
	require.Equal(t, 1, n)
	require.Equal(t, 1, pe.Index)
}

func TestReadScatters(t *testing.T) {
	a, b := pair(t)
	pattern(b.mem, 2)
	for _, n := range []int{1, 2, 5, 32} {
		for i := range a.mem {
			a.mem[i] = canary
		}
		var sgl []verbs.SGE
		total := 0
		for i := range n {
			l := 1 + (i*977)%3001
			sgl = append(sgl, a.mr.SGE(i*8192+i+5, l))
			total += l
		}
		a.post(verbs.SendWR{ID: 9, Op: verbs.OpRead, SGL: sgl, RemoteAddr: b.mr.Addr() + 77, RKey: b.mr.RKey(), Flags: verbs.SendSignaled})
		w := a.ok(verbs.WCRead, 9)
		_ = w
		pos := 77
		for _, s := range sgl {
			off := int(s.Addr - a.mr.Addr())
			require.Equal(t, b.mem[pos:pos+int(s.Len)], a.mem[off:off+int(s.Len)])
			require.Equal(t, byte(canary), a.mem[off-1])
			require.Equal(t, byte(canary), a.mem[off+int(s.Len)])
			pos += int(s.Len)
		}
		require.Equal(t, 77+total, pos)
	}
}

func TestInlineMayBeReusedAtOnce(t *testing.T) {
	a, b := pair(t)
	size := a.qp.Cap().MaxInline
	require.GreaterOrEqual(t, size, 256)
	pattern(a.mem[:256], 3)
	want := append([]byte(nil), a.mem[:256]...)
	expect(t, b.mem[:1024], 100, want, func() {
		s := a.mr.SGE(0, 256)
		s.LKey = 0xdead // not checked
		a.post(verbs.SendWR{ID: 1, Op: verbs.OpWrite, SGL: []verbs.SGE{s}, RemoteAddr: b.mr.Addr() + 100, RKey: b.mr.RKey(), Flags: verbs.SendSignaled | verbs.SendInline})
		clear(a.mem[:256])
		a.ok(verbs.WCWrite, 1)
	})
	n, err := a.qp.PostSend([]verbs.SendWR{{Op: verbs.OpWrite, SGL: []verbs.SGE{a.mr.SGE(0, size+1)}, Flags: verbs.SendInline | verbs.SendSignaled, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}})
	require.Zero(t, n)
	require.ErrorIs(t, err, unix.EINVAL)
	require.ErrorContains(t, err, "inline")
}

func TestSendRecvAndImmediates(t *testing.T) {
	a, b := pair(t)
	pattern(a.mem, 4)
	// Scattered receive, in order, with and without immediate.
	expect(t, b.mem[:16384], 10, a.mem[:3000], func() {
		b.recv(verbs.RecvWR{ID: 50, SGL: []verbs.SGE{b.mr.SGE(10, 1000), b.mr.SGE(1010, 5000)}}, verbs.RecvWR{ID: 51, SGL: []verbs.SGE{b.mr.SGE(9000, 0)}})
		a.post(verbs.SendWR{ID: 1, Op: verbs.OpSend, SGL: []verbs.SGE{a.mr.SGE(0, 3000)}, Flags: verbs.SendSignaled},
			verbs.SendWR{ID: 2, Op: verbs.OpSendWithImm, Imm: 0xa1b2c3d4, Flags: verbs.SendSignaled})
		a.ok(verbs.WCSend, 1)
		a.ok(verbs.WCSend, 2)
		w := b.ok(verbs.WCRecv, 50)
		require.Equal(t, uint32(3000), w.ByteLen)
		require.Zero(t, w.Flags&verbs.WCWithImm)
		require.Equal(t, b.qp.Num(), w.QPN)
		w = b.ok(verbs.WCRecv, 51)
		require.Equal(t, verbs.WCWithImm, w.Flags&verbs.WCWithImm)
		require.Equal(t, uint32(0xa1b2c3d4), w.Imm())
	})
	expect(t, b.mem[:8192], 5, a.mem[:2000], func() {
		b.recv(verbs.RecvWR{ID: 52})
		a.post(verbs.SendWR{ID: 3, Op: verbs.OpWriteWithImm, SGL: []verbs.SGE{a.mr.SGE(0, 2000)}, RemoteAddr: b.mr.Addr() + 5, RKey: b.mr.RKey(), Imm: 7, Flags: verbs.SendSignaled})
		a.ok(verbs.WCWrite, 3)
		w := b.ok(verbs.WCRecvWithImm, 52)
		require.Equal(t, uint32(7), w.Imm())
		require.Equal(t, uint32(2000), w.ByteLen)
	})
}

func TestAtomics(t *testing.T) {
	a, b := pair(t)
	if a.dev.AtomicCap == verbs.AtomicNone {
		t.Skip("the device has no atomics")
	}
	at := func(e *end, off int) uint64 { return binary.NativeEndian.Uint64(e.mem[off:]) }
	put := func(e *end, off int, v uint64) { binary.NativeEndian.PutUint64(e.mem[off:], v) }
	put(b, 64, 1<<40)
	put(b, 56, ^uint64(0))
	put(b, 72, ^uint64(0))
	wr := verbs.SendWR{ID: 1, Op: verbs.OpFetchAdd, SGL: []verbs.SGE{a.mr.SGE(8, 8)}, RemoteAddr: b.mr.Addr() + 64, RKey: b.mr.RKey(), Operand: 5, Flags: verbs.SendSignaled}
	a.post(wr)
	a.ok(verbs.WCFetchAdd, 1)
	require.Equal(t, uint64(1<<40), at(a, 8))
	require.Equal(t, uint64(1<<40+5), at(b, 64))
	wr.Op, wr.Compare, wr.Operand = verbs.OpCmpSwap, 1<<40+5, 0x1122334455667788
	a.post(wr)
	a.ok(verbs.WCCompSwap, 1)
	require.Equal(t, uint64(1<<40+5), at(a, 8))
	require.Equal(t, uint64(0x1122334455667788), at(b, 64))
	wr.Operand = 1 // the comparison now fails
	a.post(wr)
	a.ok(verbs.WCCompSwap, 1)
	require.Equal(t, uint64(0x1122334455667788), at(a, 8))
	require.Equal(t, uint64(0x1122334455667788), at(b, 64))
	require.Equal(t, ^uint64(0), at(b, 56))
	require.Equal(t, ^uint64(0), at(b, 72))
	wr.RemoteAddr++
	_, err := a.qp.PostSend([]verbs.SendWR{wr})
	if err == nil { // other devices report it later
		require.Error(t, func() error { w := a.poll(); return w.Err() }())
	} else {
		require.ErrorContains(t, err, "misaligned atomic")
	}
}

// Every eighth request is signalled; the list is longer than one chain and longer than the
// queue.
func TestChains(t *testing.T) {
	a, b := pair(t)
	pattern(a.mem, 5)
	depth := a.qp.Cap().MaxSendWR
	wrs := make([]verbs.SendWR, 3*depth/8*8) // the last is signalled, which completes all
	for i := range wrs {
		wrs[i] = verbs.SendWR{ID: uint64(i), Op: verbs.OpWrite, SGL: []verbs.SGE{a.mr.SGE(i*16, 16)}, RemoteAddr: b.mr.Addr() + uint64(i*16), RKey: b.mr.RKey()}
		if i%8 == 7 {
			wrs[i].Flags = verbs.SendSignaled
		}
	}
	want := append([]byte(nil), a.mem[:len(wrs)*16]...)
	expect(t, b.mem[:len(wrs)*16+64], 0, want, func() {
		next := uint64(7)
		for left := wrs; len(left) > 0; {
			n, err := a.qp.PostSend(left)
			require.NoError(t, err)
			left = left[n:]
			if posted := uint64(len(wrs) - len(left)); len(left) > 0 && next < posted {
				a.ok(verbs.WCWrite, next)
				next += 8
			}
		}
		for ; next < uint64(len(wrs)); next += 8 {
			a.ok(verbs.WCWrite, next)
		}
	})
}

// A queue that does not advance, because the peer is gone, fills up, which Post reports by
// a count; then everything completes exactly once.
func TestQueueFullIsAValue(t *testing.T) {
	a, b := pair(t)
	qa, qb := a.newQP(verbs.QPOptions{MaxSendWR: 20}), b.newQP(verbs.QPOptions{})
	join(t, a, b, qa, qb, path{set: true, timeout: 17, retry: 6, rnr: 6})
	require.NoError(t, qb.Close())
	wrs := make([]verbs.SendWR, 3*qa.Cap().MaxSendWR+200)
	for i := range wrs {
		wrs[i] = verbs.SendWR{ID: uint64(i), Op: verbs.OpWrite, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Flags: verbs.SendSignaled}
	}
	n, err := qa.PostSend(wrs)
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, qa.Cap().MaxSendWR)
	require.Less(t, n, len(wrs))
	m, err := qa.PostSend(wrs[n:])
	require.NoError(t, err)
	require.Zero(t, m)
	require.NoError(t, qa.ToErr())
	for i := range n {
		w := a.poll()
		require.Equal(t, uint64(i), w.ID)
		require.ErrorIs(t, w.Err(), verbs.ErrWCFlushed)
	}
	_, more := a.pollFor(20 * time.Millisecond)
	require.False(t, more)
}

func TestFenceKeepsAWriteBehindARead(t *testing.T) {
	a, b := pair(t)
	for range 50 {
		pattern(b.mem[:4096], 6)
		want := append([]byte(nil), b.mem[:4096]...)
		clear(a.mem[:8192])
		a.post(verbs.SendWR{ID: 1, Op: verbs.OpRead, SGL: []verbs.SGE{a.mr.SGE(0, 4096)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Flags: verbs.SendSignaled},
			// Sends back the data of the read, which is right only if the read is complete.
			verbs.SendWR{ID: 2, Op: verbs.OpWrite, SGL: []verbs.SGE{a.mr.SGE(0, 4096)}, RemoteAddr: b.mr.Addr() + 8192, RKey: b.mr.RKey(), Flags: verbs.SendSignaled | verbs.SendFence})
		a.ok(verbs.WCRead, 1)
		a.ok(verbs.WCWrite, 2)
		require.Equal(t, want, b.mem[8192:8192+4096])
	}
}

func TestBothSidesAtOnce(t *testing.T) {
	a, b := pair(t)
	pattern(a.mem[:65536], 7)
	pattern(b.mem[:65536], 8)
	for i := range uint64(20) {
		for _, x := range [][2]*end{{a, b}, {b, a}} {
			x[0].post(verbs.SendWR{ID: i, Op: verbs.OpWrite, SGL: []verbs.SGE{x[0].mr.SGE(0, 65536)}, RemoteAddr: x[1].mr.Addr() + 1<<17, RKey: x[1].mr.RKey(), Flags: verbs.SendSignaled})
		}
		a.ok(verbs.WCWrite, i)
		b.ok(verbs.WCWrite, i)
	}
	require.Equal(t, a.mem[:65536], b.mem[1<<17:1<<17+65536])
	require.Equal(t, b.mem[:65536], a.mem[1<<17:1<<17+65536])
}

func TestCompletionEvents(t *testing.T) {
	a, b := pair(t)
	ev := func() *verbs.CQ {
		q, err := b.ch.Event()
		require.NoError(t, err)
		return q
	}
	require.Nil(t, ev(), "no event asked for")
	write := func(flags verbs.SendFlags) {
		a.post(verbs.SendWR{ID: 1, Op: verbs.OpWriteWithImm, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Flags: verbs.SendSignaled | flags})
		a.ok(verbs.WCWrite, 1)
	}
	b.recv(verbs.RecvWR{ID: 1}, verbs.RecvWR{ID: 2}, verbs.RecvWR{ID: 3}, verbs.RecvWR{ID: 4})

	write(0)
	b.ok(verbs.WCRecvWithImm, 1)
	require.False(t, readable(t, b.ch.FD(), 0), "an event nobody asked for")

	require.NoError(t, b.cq.ReqNotify(false))
	require.False(t, readable(t, b.ch.FD(), 0))
	write(0)
	require.True(t, readable(t, b.ch.FD(), wait))
	require.Same(t, b.cq, ev())
	require.Nil(t, ev())
	b.ok(verbs.WCRecvWithImm, 2)

	require.NoError(t, b.cq.ReqNotify(true))
	write(0)
	b.ok(verbs.WCRecvWithImm, 3)
	require.False(t, readable(t, b.ch.FD(), 0), "not solicited")
	write(verbs.SendSolicited)
	require.True(t, readable(t, b.ch.FD(), wait))
	require.Same(t, b.cq, ev())
	b.ok(verbs.WCRecvWithImm, 4)
}

func TestErrorsAreTypedAndTouchNothing(t *testing.T) {
	a, b := pair(t)
	pattern(a.mem, 9)
	ro, roMR := b.region(8192, verbs.AccessRemoteRead)
	gone, goneMR := b.region(8192, allAccess)
	goneKey := goneMR.RKey()
	require.NoError(t, goneMR.Close())
	good := verbs.SendWR{ID: 1, Op: verbs.OpWrite, SGL: []verbs.SGE{a.mr.SGE(0, 64)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Flags: verbs.SendSignaled}
	with := func(f func(*verbs.SendWR)) verbs.SendWR { w := good; f(&w); return w }
	for _, c := range []struct {
		name string
		wr   verbs.SendWR
		mem  []byte
		want []verbs.WCStatus
	}{
		{"wrong key", with(func(w *verbs.SendWR) { w.RKey ^= 0x55 }), b.mem, []verbs.WCStatus{verbs.WCRemAccessErr}},
		{"past the end", with(func(w *verbs.SendWR) { w.RemoteAddr += memSize - 32 }), b.mem, []verbs.WCStatus{verbs.WCRemAccessErr}},
		{"before the start", with(func(w *verbs.SendWR) { w.RemoteAddr -= 8 }), b.mem, []verbs.WCStatus{verbs.WCRemAccessErr}},
		{"wraps round", with(func(w *verbs.SendWR) { w.RemoteAddr = ^uint64(0) - 16 }), b.mem, []verbs.WCStatus{verbs.WCRemAccessErr}},
		{"read-only region", with(func(w *verbs.SendWR) { w.RKey = roMR.RKey(); w.RemoteAddr = roMR.Addr() }), ro, []verbs.WCStatus{verbs.WCRemAccessErr}},
		{"atomic on a read-only region", with(func(w *verbs.SendWR) {
			w.Op = verbs.OpFetchAdd
			w.SGL = []verbs.SGE{a.mr.SGE(0, 8)}
			w.RKey = roMR.RKey()
			w.RemoteAddr = roMR.Addr()
		}), ro, []verbs.WCStatus{verbs.WCRemAccessErr}},
		{"deregistered region", with(func(w *verbs.SendWR) { w.RKey = goneKey; w.RemoteAddr = goneMR.Addr() }), gone, []verbs.WCStatus{verbs.WCRemAccessErr}},
		// Linux 6.12's rxe reports these two as flushed, 6.1's the second as an
		// operation error.
		{"local piece past the end", with(func(w *verbs.SendWR) {
			w.SGL = []verbs.SGE{{Addr: a.mr.Addr() + memSize - 32, Len: 64, LKey: a.mr.LKey()}}
		}), b.mem, []verbs.WCStatus{verbs.WCLocProtErr, verbs.WCFlushErr}},
		{"wrong local key", with(func(w *verbs.SendWR) { w.SGL = []verbs.SGE{{Addr: a.mr.Addr(), Len: 64, LKey: a.mr.LKey() ^ 0x77}} }), b.mem, []verbs.WCStatus{verbs.WCLocProtErr, verbs.WCLocQPOpErr, verbs.WCFlushErr}},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, c.mem, 0, nil, func() {
				a.post(c.wr)
				w := a.poll()
				require.Contains(t, c.want, w.Status)
				var we *verbs.WCError
				require.True(t, errors.As(w.Err(), &we))
				st, err := a.qp.State()
				require.NoError(t, err)
				require.Equal(t, verbs.StateErr, st)
				// Everything behind it is flushed, including requests posted now.
				w2 := good
				w2.ID = 2
				a.post(w2)
				w = a.poll()
				require.Equal(t, uint64(2), w.ID)
				require.ErrorIs(t, w.Err(), verbs.ErrWCFlushed)
			})
			rejoin(a, b, path{})
			a.post(good)
			a.ok(verbs.WCWrite, 1)
		})
	}
}

func TestNoReceivePosted(t *testing.T) {
	a, b := pair(t)
	rejoin(a, b, path{set: true, timeout: 14, retry: 6, rnr: 0})
	wr := verbs.SendWR{ID: 1, Op: verbs.OpSend, SGL: []verbs.SGE{a.mr.SGE(0, 64)}, Flags: verbs.SendSignaled}
	a.post(wr)
	w := a.poll()
	require.Equal(t, verbs.WCRNRRetryExcErr, w.Status)
	require.ErrorIs(t, w.Err(), verbs.ErrWCNotReady)

	rejoin(a, b, path{set: true, timeout: 14, retry: 6, rnr: 7})
	a.post(wr)
	_, done := a.pollFor(30 * time.Millisecond)
	require.False(t, done)
	b.recv(verbs.RecvWR{ID: 5, SGL: []verbs.SGE{b.mr.SGE(0, 64)}})
	a.ok(verbs.WCSend, 1)
	b.ok(verbs.WCRecv, 5)
}

// A dead peer is detected after time-out and retries, not before.
func TestPeerGone(t *testing.T) {
	a, b := pair(t)
	for _, p := range []path{{8, 1, 6, true}, {12, 6, 6, true}, {14, 3, 6, true}} {
		qa, qb := a.newQP(verbs.QPOptions{}), b.newQP(verbs.QPOptions{})
		join(t, a, b, qa, qb, p)
		require.NoError(t, qb.Close())
		t0 := time.Now()
		n, err := qa.PostSend([]verbs.SendWR{{ID: 1, Op: verbs.OpWrite, SGL: []verbs.SGE{a.mr.SGE(0, 64)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Flags: verbs.SendSignaled}})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		w := a.poll()
		require.Equal(t, verbs.WCRetryExcErr, w.Status)
		require.ErrorIs(t, w.Err(), verbs.ErrWCPeer)
		t.Logf("timeout %d, retries %d: %v", p.timeout, p.retry, time.Since(t0))
	}
}

func TestQueryAndStates(t *testing.T) {
	a, b := pair(t)
	at, err := a.qp.Query(verbs.AttrState | verbs.AttrDestQPN | verbs.AttrPathMTU | verbs.AttrTimeout | verbs.AttrAV | verbs.AttrCap)
	require.NoError(t, err)
	require.Equal(t, verbs.StateRTS, at.State)
	require.Equal(t, b.qp.Num(), at.DestQPN)
	require.Equal(t, uint8(14), at.Timeout)
	require.Equal(t, b.gid.GID, at.AH.DGID)
	require.GreaterOrEqual(t, at.Cap.MaxSendWR, 128)

	q := a.newQP(verbs.QPOptions{})
	err = q.ToRTS(&verbs.QPAttr{})
	require.ErrorIs(t, err, unix.EINVAL, "RESET → RTS is no transition")
	require.ErrorContains(t, err, "to RTS")
	require.NoError(t, q.ToInit(1, 0, allAccess))
	err = q.ToRTR(&verbs.QPAttr{PathMTU: verbs.MTU1024, DestQPN: 1, AH: verbs.AHAttr{Port: 1, Global: true, SGIDIndex: 200}})
	require.Error(t, err, "no such GID index")
	require.NoError(t, q.ToErr())
	st, err := q.State()
	require.NoError(t, err)
	require.Equal(t, verbs.StateErr, st)
	require.NoError(t, q.ToReset())

	// A parent with children stays usable.
	require.ErrorIs(t, a.pd.Close(), unix.EBUSY)
	require.ErrorIs(t, a.cq.Close(), unix.EBUSY)
	a.post(verbs.SendWR{ID: 1, Op: verbs.OpWrite, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Flags: verbs.SendSignaled})
	a.ok(verbs.WCWrite, 1)
}

func TestToErrFlushesExactlyOnce(t *testing.T) {
	a, b := pair(t)
	b.recv(verbs.RecvWR{ID: 1}, verbs.RecvWR{ID: 2}, verbs.RecvWR{ID: 3})
	require.NoError(t, b.qp.ToErr())
	for id := uint64(1); id <= 3; id++ {
		w := b.poll()
		require.ErrorIs(t, w.Err(), verbs.ErrWCFlushed)
		require.Equal(t, id, w.ID)
	}
	_, more := b.pollFor(20 * time.Millisecond)
	require.False(t, more)
	_ = a
}

func TestRegistration(t *testing.T) {
	a, b := pair(t)
	_, err := a.pd.Register(nil, 0)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	_, err = a.pd.Register(a.mem, verbs.AccessRemoteWrite)
	require.ErrorIs(t, err, verbs.ErrInvalid)

	// Pinned Go memory as source.
	src := make([]byte, 10000)
	pattern(src, 11)
	mr, err := a.pd.RegisterPinned(src, 0)
	require.NoError(t, err)
	expect(t, b.mem[:16384], 99, src, func() {
		a.post(verbs.SendWR{ID: 1, Op: verbs.OpWrite, SGL: []verbs.SGE{mr.SGE(0, len(src))}, RemoteAddr: b.mr.Addr() + 99, RKey: b.mr.RKey(), Flags: verbs.SendSignaled})
		a.ok(verbs.WCWrite, 1)
	})
	require.NoError(t, mr.Close())

	// Registered with another address for its first byte.
	mr, err = b.pd.RegisterIOVA(b.mem[:65536], 0x1000, allAccess)
	require.NoError(t, err)
	require.Equal(t, uint64(0x1000), mr.Addr())
	pattern(a.mem[:1000], 12)
	expect(t, b.mem[:65536], 12345, a.mem[:1000], func() {
		a.post(verbs.SendWR{ID: 1, Op: verbs.OpWrite, SGL: []verbs.SGE{a.mr.SGE(0, 1000)}, RemoteAddr: 0x1000 + 12345, RKey: mr.RKey(), Flags: verbs.SendSignaled})
		a.ok(verbs.WCWrite, 1)
	})
	require.NoError(t, mr.Close())

	// A file that another process could map.
	fd, err := unix.MemfdCreate("verbs-test", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Ftruncate(fd, 65536))
	m, err := unix.Mmap(fd, 0, 65536, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	mr, err = b.pd.Register(m, allAccess)
	require.NoError(t, err)
	a.post(verbs.SendWR{ID: 1, Op: verbs.OpWrite, SGL: []verbs.SGE{a.mr.SGE(0, 1000)}, RemoteAddr: mr.Addr() + 100, RKey: mr.RKey(), Flags: verbs.SendSignaled})
	a.ok(verbs.WCWrite, 1)
	got := make([]byte, 1000)
	_, err = unix.Pread(fd, got, 100)
	require.NoError(t, err)
	require.Equal(t, a.mem[:1000], got)
	require.NoError(t, mr.Close())
	require.NoError(t, unix.Munmap(m))

	// Not mapped at all.
	hole, err := unix.Mmap(-1, 0, 65536, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	_, err = b.pd.Register(hole, allAccess)
	require.Error(t, err)
	t.Log(err)
	require.NoError(t, unix.Munmap(hole))
	mr, err = b.pd.Register(b.mem, allAccess|verbs.AccessRelaxedOrdering)
	require.NoError(t, err, "an optional right is never refused")
	require.NoError(t, mr.Close())
}

func TestManyQueuePairsComeAndGo(t *testing.T) {
	a, b := pair(t)
	for i := range 30 {
		qa, qb := a.newQP(bigQP), b.newQP(bigQP)
		join(t, a, b, qa, qb, path{})
		n, err := qa.PostSend([]verbs.SendWR{{ID: uint64(i), Op: verbs.OpWrite, SGL: []verbs.SGE{a.mr.SGE(0, 64)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Flags: verbs.SendSignaled}})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		a.ok(verbs.WCWrite, uint64(i))
		require.NoError(t, qa.Close())
		require.NoError(t, qb.Close())
	}
}

func TestLimitsOfTheDevice(t *testing.T) {
	name, _ := deviceNames(t)
	e := newEnd(t, name)
	_, err := e.pd.CreateQP(verbs.QPOptions{SendCQ: e.cq, MaxSendSGE: e.dev.MaxSGE + 1})
	require.ErrorIs(t, err, unix.EINVAL)
	require.ErrorContains(t, err, "MaxSGE")
	_, err = e.pd.CreateQP(verbs.QPOptions{})
	require.ErrorIs(t, err, verbs.ErrInvalid)
	_, err = e.ctx.CreateCQ(e.dev.MaxCQE+1, nil)
	require.Error(t, err)
	q, err := e.ctx.CreateCQ(16, nil)
	require.NoError(t, err)
	require.GreaterOrEqual(t, q.Cap(), 16)
	var ended atomic.Bool
	var beside sync.WaitGroup
	beside.Go(func() {
		for q.Cap(); !ended.Load(); q.Cap() {
		}
	})
	err = q.Resize(1000)
	ended.Store(true)
	beside.Wait()
	if err == nil {
		require.GreaterOrEqual(t, q.Cap(), 1000)
	} else {
		require.ErrorIs(t, err, verbs.ErrNotSupported)
	}
	require.NoError(t, q.Close())
}

func TestDataPathAllocatesNothing(t *testing.T) {
	a, b := pair(t)
	wrs := make([]verbs.SendWR, 4)
	for i := range wrs {
		wrs[i] = verbs.SendWR{ID: 1, Op: verbs.OpWriteWithImm, SGL: []verbs.SGE{a.mr.SGE(0, 8), a.mr.SGE(64, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
	}
	wrs[3].Flags = verbs.SendSignaled
	rs := make([]verbs.RecvWR, 4)
	got := testing.AllocsPerRun(50, func() {
		var wcs [8]verbs.WC // on the stack: it does not escape through Poll
		if n, err := b.qp.PostRecv(rs); n != 4 || err != nil {
			t.Error(n, err)
		}
		if n, err := a.qp.PostSend(wrs); n != 4 || err != nil {
			t.Error(n, err)
		}
		for i, want := range []int{1, 4} {
			q := [2]*end{a, b}[i].cq
			for have := 0; have < want; {
				n, err := q.Poll(wcs[:])
				if err != nil || n > 0 && wcs[0].Status != 0 {
					t.Error(err, wcs[0].Status)
					return
				}
				have += n
				unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
			}
		}
		if err := b.cq.ReqNotify(false); err != nil {
			t.Error(err)
		}
		// With and without an event.
		for q, err := b.ch.Event(); q != nil || err != nil; q, err = b.ch.Event() {
			if err != nil {
				t.Error(err)
				return
			}
		}
		for _, ok, err := b.ctx.AsyncEvent(); ok || err != nil; _, ok, err = b.ctx.AsyncEvent() {
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	require.Zero(t, got)
}

func BenchmarkWrite(b *testing.B) {
	x, y := pair(b)
	for _, size := range []int{8, 4096, 65536} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.SetBytes(int64(size))
			wrs := []verbs.SendWR{{Op: verbs.OpWrite, SGL: []verbs.SGE{x.mr.SGE(0, size)}, RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey(), Flags: verbs.SendSignaled}}
			var wcs [1]verbs.WC
			for b.Loop() {
				if n, err := x.qp.PostSend(wrs); n != 1 || err != nil {
					b.Fatal(n, err)
				}
				for {
					if n, _ := x.cq.Poll(wcs[:]); n == 1 {
						break
					}
					unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
				}
			}
		})
	}
}

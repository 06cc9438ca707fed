//go:build linux

package verbs_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/verbs"
)

// joinUD moves a datagram queue pair to RTS.
func joinUD(t *testing.T, q *verbs.QP, qkey uint32) {
	require.NoError(t, q.ToInitUD(1, 0, qkey))
	require.NoError(t, q.ToRTR(nil))
	require.NoError(t, q.ToRTS(&verbs.QPAttr{SQPSN: 77}))
}

func TestDatagrams(t *testing.T) {
	const grh, qkey = 40, 0x11111111
	da, db := deviceNames(t)
	a, b := newEnd(t, da), newEnd(t, db)
	o := verbs.QPOptions{Type: verbs.UD, MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 2, MaxRecvSGE: 2}
	a.qp, b.qp = a.newQP(o), b.newQP(o)
	require.Equal(t, verbs.UD, a.qp.Type())
	joinUD(t, a.qp, qkey)
	joinUD(t, b.qp, qkey)
	ah, err := a.pd.CreateAH(verbs.AHAttr{DGID: b.gid.GID, SGIDIndex: uint8(a.gid.Index), HopLimit: 64, Global: true, Port: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ah.Close()) })

	pattern(a.mem[:4096], 20)
	for i, n := range []int{0, 1, 999, a.port.ActiveMTU.Bytes()} {
		for j := range b.mem[:8192] {
			b.mem[j] = canary
		}
		b.recv(verbs.RecvWR{ID: uint64(i), SGL: []verbs.SGE{b.mr.SGE(100, grh), b.mr.SGE(200, 4096)}})
		a.post(verbs.SendWR{ID: 5, Op: verbs.OpSendWithImm, Imm: 0x01020304, SGL: []verbs.SGE{a.mr.SGE(0, n/2), a.mr.SGE(n/2, n-n/2)},
			Flags: verbs.SendSignaled, Datagram: &verbs.Datagram{AH: ah, QPN: b.qp.Num(), QKey: qkey}})
		a.ok(verbs.WCSend, 5)
		w := b.ok(verbs.WCRecv, uint64(i))
		require.Equal(t, uint32(grh+n), w.ByteLen)
		require.Equal(t, a.qp.Num(), w.SrcQP)
		require.Equal(t, uint32(0x01020304), w.Imm())
		require.NotZero(t, w.Flags&verbs.WCWithGRH)
		require.Equal(t, a.mem[:n], b.mem[200:200+n])
		require.Equal(t, byte(canary), b.mem[200+n])
		require.Equal(t, byte(canary), b.mem[199])
		require.Equal(t, byte(canary), b.mem[99])
	}

	// A datagram with a wrong Q_Key is dropped at the target, and the sender is not informed.
	b.recv(verbs.RecvWR{ID: 9, SGL: []verbs.SGE{b.mr.SGE(0, 4096)}})
	wr := verbs.SendWR{ID: 6, Op: verbs.OpSend, SGL: []verbs.SGE{a.mr.SGE(0, 64)}, Flags: verbs.SendSignaled, Datagram: &verbs.Datagram{AH: ah, QPN: b.qp.Num(), QKey: qkey ^ 1}}
	a.post(wr)
	a.ok(verbs.WCSend, 6)
	wr.Datagram = &verbs.Datagram{AH: ah, QPN: b.qp.Num(), QKey: qkey}
	wr.ID = 7
	a.post(wr)
	a.ok(verbs.WCSend, 7)
	w := b.ok(verbs.WCRecv, 9) // the second of the two
	require.Equal(t, uint32(grh+64), w.ByteLen)

	n, err := a.qp.PostSend([]verbs.SendWR{{Op: verbs.OpSend, Datagram: &verbs.Datagram{}}})
	require.Zero(t, n)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	_, err = a.pd.CreateAH(verbs.AHAttr{Port: 77, Global: true})
	require.Error(t, err)
}

func TestSharedReceiveQueue(t *testing.T) {
	a, b := pair(t)
	_, err := b.pd.CreateSRQ(verbs.SRQAttr{})
	require.ErrorIs(t, err, verbs.ErrInvalid)
	srq, err := b.pd.CreateSRQ(verbs.SRQAttr{MaxWR: 64, MaxSGE: 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srq.Close()) })
	at, err := srq.Query()
	require.NoError(t, err)
	require.GreaterOrEqual(t, at.MaxWR, 64)
	require.GreaterOrEqual(t, at.MaxSGE, 2)

	// Two connections share one receive queue.
	var qas [2]*verbs.QP
	for i := range qas {
		o := bigQP
		o.SRQ = srq
		qb := b.newQP(o)
		qas[i] = a.newQP(bigQP)
		join(t, a, b, qas[i], qb, path{})
		n, err := qb.PostRecv([]verbs.RecvWR{{}})
		require.Zero(t, n)
		require.ErrorIs(t, err, verbs.ErrInvalid, "it has no queue of its own")
	}
	var rs []verbs.RecvWR
	const slot = 4096
	for i := range 16 {
		rs = append(rs, verbs.RecvWR{ID: uint64(i), SGL: []verbs.SGE{b.mr.SGE(i*slot, 100), b.mr.SGE(i*slot+100, slot-200)}})
	}
	n, err := srq.PostRecv(rs)
	require.NoError(t, err)
	require.Equal(t, 16, n)
	require.NoError(t, srq.SetLimit(8))
	require.ErrorIs(t, srq.SetLimit(1<<20), verbs.ErrInvalid)
	pattern(a.mem, 21)
	for i := range 16 {
		a.qp = qas[i%2]
		a.post(verbs.SendWR{ID: 1, Op: verbs.OpSend, SGL: []verbs.SGE{a.mr.SGE(i*100, 2000)}, Flags: verbs.SendSignaled})
		a.ok(verbs.WCSend, 1)
		w := b.ok(verbs.WCRecv, uint64(i))
		require.Equal(t, uint32(2000), w.ByteLen)
		require.Equal(t, a.mem[i*100:i*100+2000], b.mem[i*slot:i*slot+2000])
	}
	require.True(t, readable(t, b.ctx.AsyncFD(), wait), "fewer receives than the limit")
	ev := verbs.AsyncEvent{}
	for ok := true; ok && ev.Type != verbs.EventSRQLimitReached; {
		ev, ok, err = b.ctx.AsyncEvent()
		require.NoError(t, err)
	}
	require.Equal(t, verbs.EventSRQLimitReached, ev.Type)
	require.Equal(t, srq.ID(), ev.ID)
	require.False(t, ev.Fatal())
	require.ErrorIs(t, srq.Close(), unix.EBUSY, "queue pairs use it")
}

func TestMemoryWindows(t *testing.T) {
	a, b := pair(t)
	if b.dev.MaxMW == 0 {
		t.Skip("the device has no memory windows")
	}
	const off, size = 4096, 8192
	window := func(access verbs.Access, mw *verbs.MW, rkey uint32) verbs.WindowBind {
		return verbs.WindowBind{MW: mw, MR: b.mr, Addr: b.mr.Addr() + off, Len: size, Access: access, RKey: rkey}
	}
	pattern(a.mem[:size], 22)
	write := func(rkey uint32, at, n int) verbs.WC {
		a.post(verbs.SendWR{ID: 1, Op: verbs.OpWrite, SGL: []verbs.SGE{a.mr.SGE(0, n)}, RemoteAddr: b.mr.Addr() + uint64(at), RKey: rkey, Flags: verbs.SendSignaled})
		return a.poll()
	}
	// The access rights of INIT must allow binding.
	allowBind := func() {
		require.NoError(t, a.qp.ToReset())
		require.NoError(t, b.qp.ToReset())
		a.drain()
		b.drain()
		joinWith(t, a, b, a.qp, b.qp, path{}, allAccess|verbs.AccessMWBind)
	}

	t.Run("type 1", func(t *testing.T) {
		allowBind()
		mw, err := b.pd.AllocMW(verbs.MWType1)
		require.NoError(t, err)
		defer func() { require.NoError(t, mw.Close()) }()
		require.NoError(t, b.qp.Bind(3, verbs.SendSignaled, window(verbs.AccessRemoteWrite, mw, 0)))
		b.ok(verbs.WCBindMW, 3)
		expect(t, b.mem, off, a.mem[:size], func() {
			w := write(mw.RKey(), off, size)
			require.NoError(t, w.Err())
		})
		if b.dev.VendorID != 0xffffff { // rdma_rxe checks only the region's bounds
			expect(t, b.mem, off, nil, func() {
				w := write(mw.RKey(), off+8, size)
				require.ErrorIs(t, w.Err(), verbs.ErrWCRemoteAccess, "behind the window")
			})
			return
		}
		a.post(verbs.SendWR{ID: 1, Op: verbs.OpRead, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr() + off, RKey: mw.RKey(), Flags: verbs.SendSignaled})
		w := a.poll()
		require.ErrorIs(t, w.Err(), verbs.ErrWCRemoteAccess, "the window is for writing")
	})
	t.Run("type 2", func(t *testing.T) {
		allowBind()
		mw, err := b.pd.AllocMW(verbs.MWType2)
		require.NoError(t, err)
		defer func() { require.NoError(t, mw.Close()) }()
		key := verbs.NextRKey(mw.RKey())
		bind := window(verbs.AccessRemoteWrite, mw, key)
		b.post(verbs.SendWR{ID: 4, Op: verbs.OpBindMW, Bind: &bind, Flags: verbs.SendSignaled})
		b.ok(verbs.WCBindMW, 4)
		expect(t, b.mem, off, a.mem[:size], func() {
			w := write(key, off, size)
			require.NoError(t, w.Err())
		})
		// The peer returns the right by a message.
		b.recv(verbs.RecvWR{ID: 60})
		a.post(verbs.SendWR{ID: 5, Op: verbs.OpSendWithInv, RKey: key, Flags: verbs.SendSignaled})
		a.ok(verbs.WCSend, 5)
		w := b.ok(verbs.WCRecv, 60)
		require.Equal(t, key, w.InvalidatedRKey()) // rdma_rxe does not set WCWithInv in Flags
		expect(t, b.mem, off, nil, func() {
			w := write(key, off, 64)
			require.ErrorIs(t, w.Err(), verbs.ErrWCRemoteAccess)
		})
	})
	n, err := b.qp.PostSend([]verbs.SendWR{{Op: verbs.OpBindMW}})
	require.Zero(t, n)
	require.ErrorIs(t, err, verbs.ErrInvalid)
}

// TestMemlockChild is the child process of TestMemlock.
func TestMemlockChild(t *testing.T) {
	if os.Getenv("VERBS_TEST_MEMLOCK") == "" {
		t.Skip("only as the child of TestMemlock")
	}
	name, _ := deviceNames(t)
	ctx, err := verbs.Open(name)
	require.NoError(t, err)
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	mem, err := offheap.Alloc(1<<20, offheap.Scratch)
	require.NoError(t, err)
	defer func() { require.NoError(t, offheap.Free(mem, offheap.Scratch)) }()
	_, err = pd.Register(mem, verbs.AccessLocalWrite)
	var me *verbs.MemlockError
	require.True(t, errors.As(err, &me), "%v", err)
	require.Equal(t, uint64(64<<10), me.Limit)
	require.Equal(t, uint64(1<<20), me.Size)
	require.ErrorContains(t, err, "RLIMIT_MEMLOCK is 65536 bytes (64 KiB)")
}

// The error for an unprivileged user names the limit and how to raise it.
func TestMemlock(t *testing.T) {
	deviceNames(t)
	setpriv, err := exec.LookPath("setpriv")
	if err != nil || os.Getuid() != 0 {
		t.Skip("needs root and setpriv(1) to become an ordinary user")
	}
	cmd := exec.Command("sh", "-c", `ulimit -l 64 && exec "$@"`, "sh", setpriv, "--reuid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all",
		os.Args[0], "-test.run=^TestMemlockChild$", "-test.v")
	cmd.Env = append(os.Environ(), "VERBS_TEST_MEMLOCK=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.True(t, strings.Contains(string(out), "--- PASS: TestMemlockChild"), "%s", out)
}

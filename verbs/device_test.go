//go:build linux

package verbs_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/verbs"
)

// Tests in the device_*_test.go files need an RDMA device. RMA_RDMA_DEVICE and
// RMA_RDMA_DEVICE2 name the devices of the two ends; default: the first one for
// both. They run one after the other: a software device is one queue for all.

const (
	memSize = 1 << 20
	wait    = testutil.Limit // emulated machines are slow; reached in failures only
)

// deviceNames returns the devices to use, or skips (fails if RDMA is required).
func deviceNames(tb testing.TB) (a, b string) {
	tb.Helper()
	no := func(why string) {
		tb.Helper()
		if os.Getenv("RMA_REQUIRE_RDMA") == "1" {
			tb.Fatalf("RMA_REQUIRE_RDMA=1 and %s", why)
		}
		tb.Skip(why)
	}
	ds, err := verbs.Devices()
	if err != nil {
		no(err.Error())
	}
	if len(ds) == 0 {
		no("there is no RDMA device")
	}
	a, b = os.Getenv("RMA_RDMA_DEVICE"), os.Getenv("RMA_RDMA_DEVICE2")
	if a == "" {
		a = ds[0].Name
	}
	if b == "" {
		b = a
	}
	return a, b
}

// end is one side of a connection with all its objects.
type end struct {
	tb   testing.TB
	ctx  *verbs.Context
	dev  verbs.DeviceAttr
	port verbs.PortAttr
	gid  verbs.GIDEntry
	pd   *verbs.PD
	ch   *verbs.CompChannel
	cq   *verbs.CQ
	qp   *verbs.QP
	mem  []byte
	mr   *verbs.MR
}

const allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

func newEnd(tb testing.TB, dev string) *end {
	e := &end{tb: tb}
	var err error
	e.ctx, err = verbs.Open(dev)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, e.ctx.Close()) })
	e.dev, err = e.ctx.QueryDevice()
	require.NoError(tb, err)
	e.port, err = e.ctx.QueryPort(1)
	require.NoError(tb, err)
	gids, err := e.ctx.GIDs(1)
	require.NoError(tb, err)
	choice, err := verbs.ChooseGID(gids, -1)
	require.NoError(tb, err)
	e.gid = choice.Chosen
	e.pd, err = e.ctx.AllocPD()
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, e.pd.Close()) })
	e.ch, err = e.ctx.CreateCompChannel()
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, e.ch.Close()) })
	e.cq, err = e.ctx.CreateCQ(1024, e.ch)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, e.cq.Close()) })
	e.mem, e.mr = e.region(memSize, allAccess|verbs.AccessMWBind)
	return e
}

// region returns newly registered memory.
func (e *end) region(n int, access verbs.Access) ([]byte, *verbs.MR) {
	mem, err := offheap.Alloc(n, offheap.Scratch)
	require.NoError(e.tb, err)
	e.tb.Cleanup(func() { require.NoError(e.tb, offheap.Free(mem, offheap.Scratch)) })
	mr, err := e.pd.Register(mem, access)
	require.NoError(e.tb, err)
	e.tb.Cleanup(func() { require.NoError(e.tb, mr.Close()) })
	return mem, mr
}

func (e *end) newQP(o verbs.QPOptions) *verbs.QP {
	o.SendCQ = e.cq
	qp, err := e.pd.CreateQP(o)
	require.NoError(e.tb, err)
	e.tb.Cleanup(func() { require.NoError(e.tb, qp.Close()) })
	return qp
}

var bigQP = verbs.QPOptions{MaxSendWR: 128, MaxRecvWR: 128, MaxSendSGE: 32, MaxRecvSGE: 4, MaxInline: 256}

// path holds the parameters of a connection; the zero value has sensible time-outs.
type path struct {
	timeout, retry, rnr uint8
	set                 bool // the zeros are intended
}

// join moves the queue pairs of a and b from RESET to RTS.
func join(tb testing.TB, a, b *end, qa, qb *verbs.QP, p path) {
	tb.Helper()
	joinWith(tb, a, b, qa, qb, p, allAccess)
}

// joinWith is join with other access rights for the peers.
func joinWith(tb testing.TB, a, b *end, qa, qb *verbs.QP, p path, access verbs.Access) {
	tb.Helper()
	if !p.set {
		// A retry count of 7 means infinite retries on some devices.
		p = path{timeout: 14, retry: 6, rnr: 6}
	}
	one := func(e, peer *end, q, pq *verbs.QP) {
		require.NoError(tb, q.ToInit(1, 0, access))
		require.NoError(tb, q.ToRTR(&verbs.QPAttr{
			PathMTU: min(a.port.ActiveMTU, b.port.ActiveMTU), DestQPN: pq.Num(), RQPSN: 0xabcdef & pq.Num(), MaxReadsDest: 16, MinRNRTimer: 12,
			AH: verbs.AHAttr{DGID: peer.gid.GID, DLID: peer.port.LID, SGIDIndex: uint8(e.gid.Index), HopLimit: 64, Global: true, Port: 1},
		}))
		require.NoError(tb, q.ToRTS(&verbs.QPAttr{SQPSN: 0xabcdef & q.Num(), Timeout: p.timeout, RetryCount: p.retry, RNRRetry: p.rnr, MaxReads: 16}))
	}
	if q, err := qa.State(); err != nil || q != verbs.StateReset {
		tb.Fatalf("not in RESET: %v %v", q, err)
	}
	one(a, b, qa, qb)
	one(b, a, qb, qa)
}

// pair returns two ends with connected queue pairs.
func pair(tb testing.TB) (a, b *end) {
	da, db := deviceNames(tb)
	a, b = newEnd(tb, da), newEnd(tb, db)
	a.qp, b.qp = a.newQP(bigQP), b.newQP(bigQP)
	join(tb, a, b, a.qp, b.qp, path{})
	return a, b
}

// rejoin brings the two queue pairs back after an error.
func rejoin(a, b *end, p path) {
	require.NoError(a.tb, a.qp.ToReset())
	require.NoError(a.tb, b.qp.ToReset())
	a.drain()
	b.drain()
	join(a.tb, a, b, a.qp, b.qp, p)
}

func (e *end) drain() {
	wcs := make([]verbs.WC, 64)
	for {
		n, err := e.cq.Poll(wcs)
		require.NoError(e.tb, err)
		if n == 0 {
			return
		}
	}
}

// poll waits for one completion.
func (e *end) poll() verbs.WC {
	e.tb.Helper()
	w, ok := e.pollFor(wait)
	if !ok {
		e.tb.Fatal("no completion in time")
	}
	return w
}

func (e *end) pollFor(d time.Duration) (verbs.WC, bool) {
	e.tb.Helper()
	var wcs [1]verbs.WC
	var sp cpu.Spinner
	for end := time.Now().Add(d); time.Now().Before(end); sp.Wait() { // deadline: the caller's
		n, err := e.cq.Poll(wcs[:])
		require.NoError(e.tb, err)
		if n == 1 {
			return wcs[0], true
		}
	}
	return verbs.WC{}, false
}

// ok waits for one successful completion of kind op with the given ID.
func (e *end) ok(op verbs.WCOp, id uint64) verbs.WC {
	e.tb.Helper()
	w := e.poll()
	require.NoError(e.tb, w.Err())
	require.Equal(e.tb, op, w.Op)
	require.Equal(e.tb, id, w.ID)
	return w
}

// post posts requests, all of which must be accepted.
func (e *end) post(wrs ...verbs.SendWR) {
	e.tb.Helper()
	n, err := e.qp.PostSend(wrs)
	require.NoError(e.tb, err)
	require.Equal(e.tb, len(wrs), n)
}

func (e *end) recv(wrs ...verbs.RecvWR) {
	e.tb.Helper()
	n, err := e.qp.PostRecv(wrs)
	require.NoError(e.tb, err)
	require.Equal(e.tb, len(wrs), n)
}

// pattern fills b with bytes that depend on position and seed; no page or packet size
// divides its period.
func pattern(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + i>>16*101 + seed*31 + 1)
	}
}

// canary fills the bytes around the destination of a request.
const canary = 0xc5

// expect fills b with the canary, runs f, and checks that exactly [off, off+len(want))
// changed to want.
func expect(tb testing.TB, b []byte, off int, want []byte, f func()) {
	tb.Helper()
	for i := range b {
		b[i] = canary
	}
	f()
	require.True(tb, bytes.Equal(want, b[off:off+len(want)]), "payload differs")
	for i := range b {
		if (i < off || i >= off+len(want)) && b[i] != canary {
			tb.Fatalf("byte %d outside [%d, %d) was written", i, off, off+len(want))
		}
	}
}

func readable(tb testing.TB, fd int, d time.Duration) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for end := time.Now().Add(d); ; { // deadline: the caller's
		n, err := unix.Poll(p, int(max(0, time.Until(end).Milliseconds())))
		if err == unix.EINTR {
			continue
		}
		require.NoError(tb, err)
		return n == 1
	}
}

func TestMain(m *testing.M) {
	rc := m.Run()
	if n := offheap.Total(); n != 0 && rc == 0 {
		fmt.Fprintf(os.Stderr, "%d bytes off-heap leaked\n", n)
		rc = 1
	}
	os.Exit(rc)
}

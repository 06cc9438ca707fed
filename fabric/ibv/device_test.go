package ibv

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/fabrictest"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/verbs"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// need returns the names of the two devices (RMA_RDMA_DEVICE, RMA_RDMA_DEVICE2; default:
// the first for both). Without a device the test skips, or fails if RMA_REQUIRE_RDMA=1.
func need(tb testing.TB) (a, b string) {
	tb.Helper()
	ds, err := verbs.Devices()
	if err != nil || len(ds) == 0 {
		if os.Getenv("RMA_REQUIRE_RDMA") == "1" {
			tb.Fatalf("RMA_REQUIRE_RDMA=1 and there is no RDMA device: %v, %v", verbs.Support(), err)
		}
		tb.Skipf("no RDMA device: %v", verbs.Support())
	}
	a, b = os.Getenv("RMA_RDMA_DEVICE"), os.Getenv("RMA_RDMA_DEVICE2")
	if b == "" {
		b = a
	}
	return a, b
}

// open2 opens links on the two devices, with what RMA_IBV_LAST_BYTE says of them.
func open2(tb testing.TB) (fabric.Link, fabric.Link) {
	var last *bool
	if os.Getenv("RMA_IBV_LAST_BYTE") == "0" {
		last = new(bool)
	}
	return open2Of(tb, Options{LastByteLast: last})
}

// open2Of opens links on the two devices. Unguarded links are opened on the first: across a wire rdma_rxe loses results of atomics.
func open2Of(tb testing.TB, o Options) (fabric.Link, fabric.Link) {
	da, db := need(tb)
	if o.Guard != nil && !*o.Guard {
		db = da
	}
	o.Device = da
	a, err := Open(o)
	require.NoError(tb, err)
	o.Device = db
	b, err := Open(o)
	require.NoError(tb, err)
	return a, b
}

func TestConformance(t *testing.T) {
	need(t)
	fabrictest.Run(t, conformance(open2))
}

func conformance(open func(testing.TB) (fabric.Link, fabric.Link)) fabrictest.Factory {
	f := fabrictest.Factory{Open: open, Slow: testutil.Slow(), AtomicBeforeLocal: true}
	if testutil.Race {
		f.NoAllocs = "the race detector allocates"
	}
	return f
}

// Atomics by the target's processor keep the promises that the device's keep.
func TestHostAtomics(t *testing.T) {
	need(t)
	f := conformance(func(tb testing.TB) (fabric.Link, fabric.Link) { return open2Of(tb, Options{HostAtomics: true}) })
	f.AnswersAlone = true // the device acknowledges the letters; it repeats one that is lost after a seventh of PeerTimeout
	for _, c := range fabrictest.Cases() {
		switch c.Name {
		case "FetchAdd", "CompareSwap", "AtomicContention", "AtomicMisaligned", "AtomicsInOrder", "Fence", "RemoteAccess", "ExactlyOnce", "CloseFlushes", "Model":
			t.Run(c.Name, func(t *testing.T) { c.Run(t, f) })
		}
	}
}

// Both sides have to agree on who executes atomics.
func TestHostAtomicsOnOneSide(t *testing.T) {
	da, db := need(t)
	var eps [2]fabric.Endpoint
	for i, o := range []Options{{Device: da, HostAtomics: true}, {Device: db}} {
		l, err := Open(o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		require.Equal(t, i == 0, l.Caps().TargetProgress)
		eps[i], err = l.NewEndpoint(fabric.EndpointOptions{})
		require.NoError(t, err)
	}
	err := eps[1].Connect(testutil.Context(t, testutil.Limit), eps[0].Address())
	require.ErrorIs(t, err, fabric.ErrBadAddress)
	require.ErrorContains(t, err, "RMA_IBV_ATOMICS=host")
}

type side struct {
	tb  testing.TB
	l   *Link
	any fabric.Link // l, or one that falls back from it
	ep  *endpoint
	mem fabric.Region
	cs  [64]fabric.Completion
}

func pair(tb testing.TB, o fabric.EndpointOptions) (a, b *side) { return pairOf(tb, Options{}, o) }

func pairOf(tb testing.TB, lo Options, o fabric.EndpointOptions) (a, b *side) {
	return pairBy(tb, lo, o, func(l fabric.Link) fabric.Link { return l })
}

// pairBy is pairOf with links that by makes of those of the devices.
func pairBy(tb testing.TB, lo Options, o fabric.EndpointOptions, by func(fabric.Link) fabric.Link) (a, b *side) {
	la, lb := open2Of(tb, lo)
	mk := func(first fabric.Link) *side {
		l := by(first)
		s := &side{tb: tb, l: first.(*Link), any: l}
		tb.Cleanup(func() { require.NoError(tb, l.Close()) })
		var err error
		s.mem, err = l.Alloc(1<<20, fabric.AccessAll)
		require.NoError(tb, err)
		tb.Cleanup(func() { require.NoError(tb, s.mem.Close()) })
		ep, err := first.NewEndpoint(o)
		require.NoError(tb, err)
		s.ep = ep.(*endpoint)
		return s
	}
	a, b = mk(la), mk(lb)
	join(tb, a.ep, b.ep)
	return a, b
}

func join(tb testing.TB, a, b fabric.Endpoint) {
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Limit)
	defer cancel()
	require.NoError(tb, a.Connect(ctx, b.Address()))
	require.NoError(tb, b.Connect(ctx, a.Address()))
}

// wait polls the sides until one has completions, and returns them.
func (s *side) wait(others ...*side) []fabric.Completion {
	s.tb.Helper()
	var sp cpu.Spinner
	for end := time.Now().Add(testutil.Limit); time.Now().Before(end); sp.Wait() {
		if n := s.l.Poll(s.cs[:]); n > 0 {
			return s.cs[:n]
		}
		for _, o := range others {
			if n := o.l.Poll(o.cs[:]); n > 0 {
				s.tb.Fatalf("the other side reports %+v", o.cs[:n])
			}
		}
	}
	s.tb.Fatal("no completion in time")
	return nil
}

func (s *side) write(to *side, n int, flags fabric.Flags) fabric.WR {
	return fabric.WR{Op: fabric.OpWrite, Local: []fabric.SGE{fabric.NewSGE(s.mem.Bytes()[:n], s.mem.LKey())},
		RemoteAddr: to.mem.Addr(), RKey: to.mem.Key().RKey, Flags: flags}
}

func TestLinkSaysWhatItChose(t *testing.T) {
	l, _ := pair(t, fabric.EndpointOptions{})
	t.Log(l.l.Choice())
	t.Logf("%+v", l.l.Caps())
	require.Contains(t, l.l.Choice(), "GID")
	_, err := Open(Options{Device: "no-such-device"})
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	index := 200
	_, err = Open(Options{GIDIndex: &index})
	require.ErrorIs(t, err, ErrNoPort)
	_, err = Open(Options{Port: 77})
	require.ErrorIs(t, err, ErrNoPort)
	// By the name of the interface, with a smaller MTU.
	ds, err := verbs.Devices()
	require.NoError(t, err)
	if len(ds[0].NetDevs) > 0 {
		m, err := Open(Options{Device: ds[0].NetDevs[0], MTU: 256})
		require.NoError(t, err)
		require.Equal(t, ds[0].Name, m.ctx.Name())
		require.Equal(t, verbs.MTU256, m.mtu)
		require.NoError(t, m.Close())
	}
}

// A target that does not poll accepts as many notifications as it has receives posted; then
// the sender's device retries, and gives up with StatusNotReady.
func TestNotificationsWithoutReceives(t *testing.T) {
	a, b := pair(t, fabric.EndpointOptions{Depth: 64, PeerTimeout: 300 * time.Millisecond})
	w := a.write(b, 8, fabric.FlagNotify|fabric.FlagSignaled)
	sent, done := 0, 0
	var last fabric.Completion
	for end := time.Now().Add(testutil.Limit); last.Status == fabric.StatusOK && time.Now().Before(end); {
		w.ID = uint64(sent)
		if n, err := a.ep.Post([]fabric.WR{w}); err == nil {
			sent += n
		}
		for _, c := range a.cs[:a.l.Poll(a.cs[:])] {
			if last = c; c.Status != fabric.StatusOK {
				break
			}
			require.Equal(t, uint64(done), c.ID)
			done++
		}
		cpu.Yield()
	}
	require.Equal(t, fabric.StatusNotReady, last.Status)
	require.Equal(t, b.ep.recvs, done)
}

// The same number of notifications, with a target that polls late and seldom.
func TestLatePollerLosesNoNotification(t *testing.T) {
	a, b := pair(t, fabric.EndpointOptions{Depth: 64})
	const total = 3000
	posted, got, done := 0, 0, 0
	w := a.write(b, 8, fabric.FlagNotify|fabric.FlagSignaled)
	for end := time.Now().Add(testutil.Limit); got < total || done < total; {
		require.True(t, time.Now().Before(end), "posted %d, done %d, got %d", posted, done, got)
		for posted < total {
			w.Imm = uint32(posted)
			n, err := a.ep.Post([]fabric.WR{w})
			require.NoError(t, err)
			if n == 0 {
				break
			}
			posted++
		}
		for _, c := range a.cs[:a.l.Poll(a.cs[:])] {
			require.NoError(t, c.Err())
			done++
		}
		if posted-got >= b.ep.recvs || posted == total {
			for _, c := range b.cs[:b.l.Poll(b.cs[:])] {
				require.Equal(t, fabric.OpNotify, c.Op)
				require.Equal(t, uint32(got), c.Imm)
				got++
			}
		}
		cpu.Yield()
	}
}

// The target refuses a request of this side, which breaks the target's queue pair.
func TestTargetLearnsOfARefusal(t *testing.T) {
	a, b := pair(t, fabric.EndpointOptions{})
	w := a.write(b, 8, fabric.FlagSignaled)
	w.RKey ^= 0x5500
	_, err := a.ep.Post([]fabric.WR{w})
	require.NoError(t, err)
	c := a.wait()
	require.Equal(t, fabric.StatusRemoteAccess, c[0].Status)
	require.ErrorIs(t, a.ep.Err(), fabric.ErrRemoteAccess)
	require.ErrorIs(t, a.ep.Err(), fabric.ErrDown)
	c = b.wait()
	require.Equal(t, fabric.OpDown, c[0].Op)
	require.NotEqual(t, fabric.StatusOK, c[0].Status)
	require.ErrorIs(t, b.ep.Err(), fabric.ErrDown)
}

func TestRequestOfTooManyPieces(t *testing.T) {
	a, b := pair(t, fabric.EndpointOptions{Depth: 8})
	most := chainMax * a.l.caps.MaxSGE
	w := a.write(b, 8, fabric.FlagSignaled)
	one := fabric.NewSGE(a.mem.Bytes()[:3], a.mem.LKey())
	for range most - 1 {
		w.Local = append(w.Local, one)
	}
	n, err := a.ep.Post([]fabric.WR{w})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, a.wait()[0].Err())
	for _, extra := range []fabric.SGE{one, {}} {
		w := w
		w.Local = append(w.Local[:most:most], one, extra)
		n, err = a.ep.Post([]fabric.WR{w})
		require.Zero(t, n)
		require.ErrorIs(t, err, fabric.ErrInvalidWR)
	}
	require.Zero(t, a.ep.tail-a.ep.head, "slots given back")
}

// A completion queue that cannot grow gives ErrTooManyEndpoints.
func TestTooManyEndpoints(t *testing.T) {
	a, _ := pair(t, fabric.EndpointOptions{})
	var err error
	var eps []fabric.Endpoint
	for len(eps) < 1000 {
		var e fabric.Endpoint
		if e, err = a.l.NewEndpoint(fabric.EndpointOptions{Depth: 4096}); err != nil {
			break
		}
		eps = append(eps, e)
	}
	if err == nil {
		t.Skipf("the device's completion queues hold more than %d endpoints need", len(eps))
	}
	require.True(t, errors.Is(err, ErrTooManyEndpoints) || errors.Is(err, verbs.ErrMemlock), "%v", err)
	t.Log(len(eps), err)
	require.NoError(t, eps[0].Close())
	e, err := a.l.NewEndpoint(fabric.EndpointOptions{Depth: 4096})
	require.NoError(t, err, "there is room again")
	eps[0] = e
	for _, e := range eps {
		require.NoError(t, e.Close())
	}
}

func BenchmarkLatency(b *testing.B) {
	x, y := pair(b, fabric.EndpointOptions{})
	for _, op := range []fabric.Op{fabric.OpWrite, fabric.OpRead} {
		for _, size := range []int{8, 4096, 65536} {
			b.Run(op.String()+"/"+strconv.Itoa(size), func(b *testing.B) {
				w := x.write(y, size, fabric.FlagSignaled)
				w.Op = op
				if op == fabric.OpWrite && size <= x.l.caps.MaxInline {
					w.Flags |= fabric.FlagInline
				}
				ws := []fabric.WR{w}
				for b.Loop() {
					if n, err := x.ep.Post(ws); n != 1 || err != nil {
						b.Fatal(n, err)
					}
					for x.l.Poll(x.cs[:]) == 0 {
						cpu.Yield()
					}
				}
			})
		}
	}
}

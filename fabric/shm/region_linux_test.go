package shm

import (
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/testutil"
)

// More segments than the socket holds, while the peer never looks: nothing
// blocks, nothing is lost, and what has not come yet works all the same.
func TestManySegmentsAndAPeerThatDoesNotLook(t *testing.T) {
	const count = 2000
	for name, o := range map[string]Options{"cma": {}, "no cma": {DisableCMA: true}} {
		t.Run(name, func(t *testing.T) {
			x, y := pair(t, o, fabric.EndpointOptions{})
			la := alloc(t, x.link, 64)
			rs := make([]fabric.Region, count)
			for i := range rs {
				rs[i] = alloc(t, y.link, 64)
			}
			y.sock.mu.Lock()
			held := len(y.sock.outbox)
			y.sock.mu.Unlock()
			require.NotZero(t, held, "the socket took them all: the test tests nothing")
			wr := write(la, 0, 8, rs[count-1].Key(), 0)
			testutil.Store64(la.Bytes(), 4711)
			post(t, x, wr) // x drains its socket, but y has not sent the rest yet
			require.Equal(t, fabric.StatusOK, await(t, x.link, y.link).Status)
			require.EqualValues(t, 4711, testutil.Load64(rs[count-1].Bytes()))
			// A region that closes before the peer heard of it.
			dead, err := y.link.Alloc(64, fabric.AccessAll)
			require.NoError(t, err)
			require.NoError(t, dead.Close())
			testutil.Eventually(t, testutil.Limit, func() bool {
				poll(t, x.link)
				poll(t, y.link)
				return len(x.mem.segs) == count
			}, "all segments to be mapped")
			for i, r := range rs {
				testutil.Store64(la.Bytes(), uint64(i)+1)
				post(t, x, write(la, 0, 8, r.Key(), 8))
				require.EqualValues(t, i+1, testutil.Load64(r.Bytes()[8:]))
				require.Equal(t, fabric.StatusOK, await(t, x.link).Status)
			}
		})
	}
}

// The backlog goes on when the owner sleeps, too: room in the socket is an
// event.
func TestBacklogWakesTheOwner(t *testing.T) {
	x, y := pair(t, Options{}, fabric.EndpointOptions{})
	const count = 700
	for range count {
		alloc(t, y.link, 64)
	}
	testutil.Eventually(t, testutil.Limit, func() bool {
		poll(t, y.link)
		ok, err := y.link.Arm()
		require.NoError(t, err)
		if ok {
			x.drainSocket()
			require.True(t, len(x.mem.segs) == count || readable(t, y.link, testutil.Limit))
		}
		y.link.Disarm()
		return len(x.mem.segs) == count
	}, "all segments")
}

// What is behind a wake message in the socket is read later: a wake-up costs one call.
func TestWakeMessagesAreReadOneByOne(t *testing.T) {
	x, y := pair(t, Options{}, fabric.EndpointOptions{})
	x.drainSocket()
	had := len(x.mem.segs)
	require.NoError(t, sendWake(y.sock.fd))
	require.NoError(t, sendWake(y.sock.fd))
	alloc(t, y.link, 64)
	for range 2 {
		require.True(t, readable(t, x.link, testutil.Limit))
		readSocket(x, true)
		require.Len(t, x.mem.segs, had)
	}
	require.True(t, readable(t, x.link, testutil.Limit))
	readSocket(x, true)
	require.Len(t, x.mem.segs, had+1)
}

// Memory inside a segment is mapped memory also if registered by itself.
func TestRegisterInsideASegment(t *testing.T) {
	x, y := pair(t, Options{DisableCMA: true}, fabric.EndpointOptions{})
	la, lb := alloc(t, x.link, 4096), alloc(t, y.link, 1<<16)
	sub, err := y.link.Register(lb.Bytes()[5000:6000], fabric.AccessRemoteWrite)
	require.NoError(t, err)
	g := testutil.Guard(lb.Bytes(), 5000, 1000)
	testutil.Fill(la.Bytes(), 9, 0)
	post(t, x, write(la, 0, 1000, sub.Key(), 0))
	require.Equal(t, fabric.StatusOK, await(t, x.link).Status) // without y's help
	require.NoError(t, testutil.Verify(g.Buf, 9, 0))
	require.NoError(t, g.Check())
	require.NoError(t, sub.Close())
	post(t, x, write(la, 0, 8, sub.Key(), 0))
	require.Equal(t, fabric.StatusRemoteAccess, await(t, x.link).Status)
}

// Peers unmap what the owner closed.
func TestClosedSegmentIsUnmapped(t *testing.T) {
	x, y := pair(t, Options{}, fabric.EndpointOptions{})
	la := alloc(t, x.link, 64)
	before := offheap.InUse(offheap.Regions)
	for range 20 {
		r, err := y.link.Alloc(1<<20, fabric.AccessAll)
		require.NoError(t, err)
		post(t, x, write(la, 0, 8, r.Key(), 0))
		require.Equal(t, fabric.StatusOK, await(t, x.link).Status)
		require.NoError(t, r.Close())
	}
	testutil.Eventually(t, testutil.Limit, func() bool {
		poll(t, x.link)
		return offheap.InUse(offheap.Regions) == before
	}, "the peer to unmap")
}

// Close waits for a peer in the middle of a system call on the region, a while: then it
// says so, and has kept everything, until the peer is through or gone.
func TestRegionCloseWaitsForUsers(t *testing.T) {
	x, y := pair(t, Options{}, fabric.EndpointOptions{})
	for waited := false; !waited; { // again, if this test gets no processor for useWait
		r, err := y.link.Register(testutil.Scratch(t, 4096), fabric.AccessAll)
		require.NoError(t, err)
		y.own.hdr.hazard.Store(r.Key().RKey) // as x would
		closed := make(chan error, 1)
		start := time.Now()
		go func() { closed <- r.Close() }()
		// The withdrawal comes before the wait.
		testutil.Eventually(t, testutil.Limit, func() bool {
			return y.link.table[r.Key().RKey%tableSlots].key.Load() == 0
		}, "the withdrawal")
		select {
		case err = <-closed:
			require.Error(t, err, "closed while in use")
			y.own.hdr.hazard.Store(0)
		default:
			y.own.hdr.hazard.Store(0)
			err = <-closed
		}
		if waited = err == nil; !waited {
			require.ErrorIs(t, err, fabric.ErrInUse)
			require.GreaterOrEqual(t, time.Since(start), useWait)
			require.NoError(t, r.Close())
		}
	}

	r, err := y.link.Register(testutil.Scratch(t, 4096), fabric.AccessAll)
	require.NoError(t, err)
	y.own.hdr.hazard.Store(r.Key().RKey)
	start := time.Now()
	require.ErrorIs(t, r.Close(), fabric.ErrInUse)
	require.GreaterOrEqual(t, time.Since(start), useWait)
	require.ErrorIs(t, r.Close(), fabric.ErrInUse)
	y.own.hdr.hazard.Store(0)
	require.NoError(t, r.Close())

	// The peer's end of the socket says that it will never be through.
	r, err = y.link.Register(testutil.Scratch(t, 4096), fabric.AccessAll)
	require.NoError(t, err)
	y.own.hdr.hazard.Store(r.Key().RKey)
	require.ErrorIs(t, r.Close(), fabric.ErrInUse)
	require.NoError(t, x.Close())
	require.NoError(t, r.Close())
}

// What a peer said it was using counts as well when this side's endpoint has gone, and
// the whole link.
func TestRegionCloseAfterTheEndpoint(t *testing.T) {
	testutil.NoLeaks(t)
	x, y := pair(t, Options{}, fabric.EndpointOptions{})
	var rs []fabric.Region
	for range 2 {
		r, err := y.link.Register(testutil.Scratch(t, 4096), fabric.AccessAll)
		require.NoError(t, err)
		rs = append(rs, r)
	}
	hdr := y.own.hdr
	hdr.hazard.Store(rs[0].Key().RKey)
	require.NoError(t, y.Close())
	require.ErrorIs(t, rs[0].Close(), fabric.ErrInUse)
	require.NoError(t, rs[1].Close())
	err := y.link.Close()
	require.ErrorIs(t, err, fabric.ErrInUse)
	require.NotErrorIs(t, err, fabric.ErrRegionsOpen, "the caller has closed them all")
	require.ErrorIs(t, rs[0].Close(), fabric.ErrInUse)
	require.Equal(t, 1, y.link.remembers())
	require.Equal(t, fabric.OpDown, await(t, x.link).Op) // x looks, and takes leave
	require.NoError(t, rs[0].Close())
	require.Zero(t, y.link.remembers())
}

// A link that closes while a peer probes keeps what the peer may write to until it is
// through, and no longer, although nobody polls any more.
func TestLinkCloseWhileThePeerProbes(t *testing.T) {
	for _, how := range []string{"is through", "is gone"} {
		t.Run(how, func(t *testing.T) {
			testutil.NoLeaks(t)
			x, y := pair(t, Options{}, fabric.EndpointOptions{})
			hdr := y.own.hdr
			hdr.hazard.Store(probing) // as x does in Connect
			require.NoError(t, y.link.Close())
			require.Equal(t, 1, y.link.remembers())
			hdr.probe.Store(1) // it is still there
			if how == "is through" {
				hdr.hazard.Store(0)
			} else {
				require.NoError(t, x.Close())
			}
			testutil.Eventually(t, testutil.Limit, func() bool { return y.link.remembers() == 0 }, "the end of the record")
		})
	}
}

// remembers is how many records of hazards l keeps.
func (l *link) remembers() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.hazards)
}

func TestInvalidSizes(t *testing.T) {
	a, _ := openPair(t, Options{})
	for _, n := range []int{0, -1, math.MaxInt} {
		_, err := a.Alloc(n, fabric.AccessAll)
		require.Error(t, err)
	}
	_, err := a.Register(nil, fabric.AccessAll)
	require.Error(t, err)
	for _, d := range []int{-1, maxDepth + 1} {
		_, err = a.NewEndpoint(fabric.EndpointOptions{Depth: d})
		require.Error(t, err)
	}
}

// Close leaves nothing, whatever was open, and says what the caller forgot.
func TestCloseLeavesNothing(t *testing.T) {
	testutil.NoLeaks(t)
	for _, o := range ways {
		x, y := pair(t, o, fabric.EndpointOptions{})
		a, b := x.link, y.link
		_, err := a.NewEndpoint(fabric.EndpointOptions{}) // never connected
		require.NoError(t, err)
		_, err = b.Alloc(1<<20, fabric.AccessAll)
		require.NoError(t, err)
		_, err = b.Alloc(4096, fabric.AccessAll)
		require.NoError(t, err)
		require.ErrorIs(t, b.Close(), fabric.ErrRegionsOpen)
		require.NoError(t, b.Close(), "idempotent")
		require.Equal(t, fabric.OpDown, await(t, a).Op)
		require.NoError(t, a.Close())
		_, err = a.Alloc(64, fabric.AccessAll)
		require.ErrorIs(t, err, fabric.ErrClosed)
		_, err = a.NewEndpoint(fabric.EndpointOptions{})
		require.ErrorIs(t, err, fabric.ErrClosed)
		_, err = a.Arm()
		require.ErrorIs(t, err, fabric.ErrClosed)
		a.Disarm()
		poll(t, a)
	}
}

// Regions and endpoints come and go from other goroutines while the owners
// poll and post.
func TestSetUpBesideTheOwner(t *testing.T) {
	for name, o := range ways {
		t.Run(name, func(t *testing.T) {
			x, y := pair(t, o, fabric.EndpointOptions{ID: 1})
			la, lb := alloc(t, x.link, 4096), alloc(t, y.link, 4096)
			stop := make(chan struct{})
			var owners, others sync.WaitGroup
			fail := make(chan error, 8)
			check := func(err error) bool {
				if err != nil {
					select {
					case fail <- err:
					default:
					}
				}
				return err != nil
			}
			own := func(ep *endpoint, wr fabric.WR) {
				defer owners.Done()
				var cs [8]fabric.Completion
				for {
					select {
					case <-stop:
						return
					default:
					}
					if ep != nil {
						if _, err := ep.Post([]fabric.WR{wr}); check(err) {
							return
						}
					}
					l := y.link
					if ep != nil {
						l = ep.link
					}
					for _, c := range cs[:l.Poll(cs[:])] {
						if c.EP == 1 && check(c.Err()) {
							return
						}
					}
				}
			}
			owners.Add(2)
			go own(x, write(la, 0, 64, lb.Key(), 64))
			go own(nil, fabric.WR{})
			others.Add(2)
			go func() {
				defer others.Done()
				for range 100 {
					r, err := y.link.Alloc(4096, fabric.AccessAll)
					if check(err) {
						return
					}
					check(r.Close())
				}
			}()
			go func() {
				defer others.Done()
				ctx, cancel := contextFor(testutil.Limit)
				defer cancel()
				for range 20 {
					p, err := x.link.NewEndpoint(fabric.EndpointOptions{ID: 2})
					q, err2 := y.link.NewEndpoint(fabric.EndpointOptions{ID: 2})
					if check(errors.Join(err, err2)) {
						return
					}
					c := make(chan error, 1)
					go func() { c <- p.Connect(ctx, q.Address()) }()
					err = q.Connect(ctx, p.Address())
					check(errors.Join(err, <-c))
				}
			}()
			others.Wait()
			close(stop)
			owners.Wait()
			select {
			case err := <-fail:
				t.Fatal(err)
			default:
			}
		})
	}
}

// The paths that the conformance suite does not count: refusals for a full
// ring, going to sleep, waking up.
func TestSleepingAllocatesNothing(t *testing.T) {
	x, y := pair(t, Options{}, fabric.EndpointOptions{})
	la, lb := alloc(t, x.link, 64), alloc(t, y.link, 64)
	wr := write(la, 0, 8, lb.Key(), 0)
	wr.Flags = 0
	list := []fabric.WR{wr}
	cs := make([]fabric.Completion, 4)
	sleepOn(t, y.link)
	y.link.Disarm()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if ok, err := y.link.Arm(); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if n, err := x.Post(list); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		y.link.Disarm()
		if y.link.Poll(cs) != 0 || x.link.Poll(cs) != 0 {
			t.Fatal("completions")
		}
	}))
}

// Memory for one peer is mapped by that peer alone, which accesses it without help; others do not
// hear of it when it is allocated, when they connect, when they ask for it and when it is closed.
func TestAllocForOnePeer(t *testing.T) {
	a, b := openPair(t, Options{})
	x, y := pairOn(t, a, b, fabric.EndpointOptions{})
	others := [2]*endpoint{}
	connect := func(i int) *endpoint {
		other, z := pairOn(t, a, b, fabric.EndpointOptions{})
		others[i] = other
		return z
	}
	z := connect(0)
	_, err := b.AllocFor(x, 64, fabric.AccessAll)
	require.ErrorContains(t, err, "not an endpoint of this link")
	r, err := b.AllocFor(y, 64, fabric.AccessAll)
	require.NoError(t, err)
	connect(1)
	la := alloc(t, a, 64)
	testutil.Store64(la.Bytes(), 4711)
	post(t, x, write(la, 0, 8, r.Key(), 0))
	require.Equal(t, fabric.StatusOK, await(t, a).Status) // b does not help
	require.EqualValues(t, 4711, testutil.Load64(r.Bytes()))
	b.tellAgain(z, b.lastSeg)
	all := alloc(t, b, 64) // comes last
	hears := func(ep *endpoint, segs int) {
		testutil.Eventually(t, testutil.Limit, func() bool {
			poll(t, a)
			return len(ep.mem.segs) == segs
		}, "%d segments", segs)
	}
	hears(x, 2)
	for _, other := range others {
		hears(other, 1)
		post(t, other, write(la, 0, 8, all.Key(), 0))
		require.Equal(t, fabric.StatusOK, await(t, a).Status)
	}
	require.NoError(t, r.Close())
	hears(x, 1)
	for _, other := range others {
		hears(other, 1)
		require.True(t, other.isUp())
	}
}

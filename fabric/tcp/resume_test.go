//go:build linux

package tcp

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/fabrictest"
	"github.com/seed33544411/rma/internal/event"
	"github.com/seed33544411/rma/internal/testutil"
)

var resumes = Config{Resume: true, Paths: []netip.Addr{netip.MustParseAddr("127.0.0.2")}}

// cut shuts down one of the sockets of each endpoint that is up, in some direction. It returns their
// number.
func cut(l *link, rng *rand.Rand) (n int) {
	for _, e := range endpoints(l) {
		e.mu.Lock()
		if fds := []int{e.sock.fd}; e.state.Load() == epUp && e.sock.open() {
			for i := range e.lanes.all {
				fds = append(fds, e.lanes.all[i].fd)
			}
			if unix.Shutdown(fds[rng.IntN(len(fds))], rng.IntN(3)) == nil {
				n++
			}
		}
		e.mu.Unlock()
	}
	return n
}

// The whole suite while connections are lost again and again, on either side and in either direction:
// the contract holds.
func TestConformanceAcrossLosses(t *testing.T) {
	reasons := map[string]string{"NoAllocation": "making a connection allocates"}
	// Each loss takes a socket of every endpoint: where there are many, or many rounds, most of the time
	// would be spent making connections. A quarter still sees a hundred losses or more.
	fewer := map[string]int{"ManyEndpoints": 4, "Model": 4}
	for name, c := range map[string]struct {
		cfg    Config
		direct int
	}{
		"plain":     {Config{Lanes: -1}, directMax},
		"epoll":     {Config{SendBuffer: 64 << 10, LaneMin: 16 << 10}, -1},
		"lanes":     {Config{SendBuffer: 64 << 10, Lanes: 3, LaneMin: 1}, directMax},
		"encrypted": {Config{Crypt: CryptFull, Lanes: 2, LaneMin: 4 << 10}, -1},
	} {
		c.cfg.Resume, c.cfg.Paths = true, resumes.Paths
		open := openTwo(c.cfg, c.direct)
		f := fabrictest.Factory{IdleDown: true, PeerTimeout: testutil.Limit, Deadline: testutil.Limit, Open: func(tb testing.TB) (a, b fabric.Link) {
			a, b = open(tb)
			stop, cuts := make(chan struct{}), 0
			var done sync.WaitGroup
			done.Go(func() {
				rng := rand.New(rand.NewPCG(rand.Uint64(), 7))
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Duration(rng.ExpFloat64() * float64(5*time.Millisecond))): // deadline: pauses between losses
						cuts += cut([]*link{a.(*link), b.(*link)}[rng.IntN(2)], rng)
					}
				}
			})
			tb.Cleanup(func() { close(stop); done.Wait(); tb.Logf("%d sockets were shut down", cuts) })
			return a, b
		}}
		t.Run(name, func(t *testing.T) {
			for _, x := range fabrictest.Cases() {
				if why := reasons[x.Name]; why == "" {
					f.Slow = fewer[x.Name]
					t.Run(x.Name, func(t *testing.T) { x.Run(t, f) })
				}
			}
		})
	}
}

// dialler returns the one of the two that dials, and the other one.
func dialler(a, b *host) (dials, waits *host) {
	if a.ep.nonce < b.ep.nonce {
		return a, b
	}
	return b, a
}

// write writes n bytes from a to b and waits for the completion.
func write(t *testing.T, a, b *host, n int) {
	w := a.write(0, n, b.reg.Key(), fabric.FlagSignaled)
	done := len(a.got)
	k, err := a.ep.Post([]fabric.WR{w})
	require.NoError(t, err)
	require.Equal(t, 1, k)
	until(t, "the write", func() bool {
		return slices.ContainsFunc(a.got[done:], func(c fabric.Completion) bool { return c.Op == fabric.OpWrite && c.Status == fabric.StatusOK })
	}, a, b)
}

// A path on which nobody answers any longer is replaced by another one.
func TestResumesOverAnotherPath(t *testing.T) {
	a, b := dialler(pair(t, resumes, 1<<20))
	write(t, a, b, 1<<20)
	require.NoError(t, b.l.lns[0].Close())
	rng := rand.New(rand.NewPCG(1, 1))
	for _, h := range []*host{a, b} {
		require.Equal(t, 1, cut(h.l, rng))
		write(t, a, b, 1<<20)
		write(t, b, a, 100)
		there, err := unix.Getpeername(a.ep.sock.fd)
		require.NoError(t, err)
		require.Equal(t, resumes.Paths[0].As4(), there.(*unix.SockaddrInet4).Addr)
		n, why := h.ep.Outages()
		require.NoError(t, why)
		require.Positive(t, n)
		require.Contains(t, h.got, fabric.Completion{EP: h.ep.id, Op: fabric.OpPath})
	}
}

// A link whose endpoint has continued on another connection sleeps as before.
func TestResumedLinkSleeps(t *testing.T) {
	a, b := dialler(pair(t, resumes, 4096))
	write(t, a, b, 100)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 10 {
		require.Equal(t, 1, cut(a.l, rng))
		write(t, a, b, 100)
		write(t, b, a, 100)
		for _, h := range []*host{a, b} {
			until(t, "nothing to do", func() bool {
				sleeps, err := h.l.Arm()
				require.NoError(t, err)
				woken, err := event.Wait(h.l.FD(), 0)
				require.NoError(t, err)
				return sleeps && !woken
			}, a, b)
		}
	}
}

// A connection is the end of its endpoint if one of the sides does not resume.
func TestBothSidesResume(t *testing.T) {
	a, b := newHost(t, resumes, fabric.EndpointOptions{ID: 1}, 4096), newHost(t, Config{}, fabric.EndpointOptions{ID: 2}, 4096)
	join(t, a, b)
	write(t, a, b, 100)
	require.Equal(t, 1, cut(b.l, rand.New(rand.NewPCG(1, 1))))
	until(t, "both are down", func() bool { return a.ep.Err() != nil && b.ep.Err() != nil }, a, b)
	require.ErrorIs(t, a.ep.Err(), fabric.ErrPeerGone)
	n, _ := a.ep.Outages()
	require.Zero(t, n)
}

// If the peer cannot be reached any longer, the endpoint goes down as without Resume: the oldest
// request has failed, and the others are flushed.
func TestLossesThatStay(t *testing.T) {
	o := fabric.EndpointOptions{PeerTimeout: 100 * time.Millisecond}
	a, b := dialler(newHost(t, resumes, o, 4096), newHost(t, resumes, o, 4096))
	join(t, a, b)
	write(t, a, b, 100)
	closeListeners(b.l)
	a.got = nil
	var wrs []fabric.WR
	for i := range uint64(3) {
		w := a.write(0, 8, b.reg.Key(), fabric.FlagSignaled)
		w.ID = i + 1
		wrs = append(wrs, w)
	}
	n, err := a.ep.Post(wrs)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.NoError(t, unix.Shutdown(a.ep.sock.fd, unix.SHUT_RDWR))
	until(t, "the loss is seen", func() bool { n, _ := a.ep.Outages(); return n > 0 }, a)
	until(t, "both are down", func() bool { return a.ep.Err() != nil && b.ep.Err() != nil }, a, b)
	for _, h := range []*host{a, b} {
		require.ErrorIs(t, h.ep.Err(), fabric.ErrPeerGone)
		_, why := h.ep.Outages()
		require.ErrorIs(t, why, fabric.ErrPeerGone)
	}
	a.got = slices.DeleteFunc(a.got, func(c fabric.Completion) bool { return c.Op == fabric.OpPath })
	want := []fabric.Completion{{ID: 1, Op: fabric.OpWrite, Status: fabric.StatusPeerGone}, {ID: 2, Op: fabric.OpWrite, Status: fabric.StatusFlushed}, {ID: 3, Op: fabric.OpWrite, Status: fabric.StatusFlushed}, {Op: fabric.OpDown, Status: fabric.StatusPeerGone}}
	until(t, "all are reported", func() bool { return len(a.got) >= len(want) }, a)
	a.got = slices.DeleteFunc(a.got, func(c fabric.Completion) bool { return c.Op == fabric.OpPath })
	require.Equal(t, want, a.got)
}

// An endpoint that is closed is not looked for.
func TestClosedEndpointsAreNotResumed(t *testing.T) {
	a, b := pair(t, resumes, 4096)
	write(t, a, b, 100)
	require.NoError(t, b.ep.Close())
	until(t, "down", func() bool { return a.ep.Err() != nil }, a)
	n, _ := a.ep.Outages()
	require.Zero(t, n)

	a, b = pair(t, resumes, 4096)
	write(t, a, b, 100)
	cut(a.l, rand.New(rand.NewPCG(1, 1)))
	until(t, "the loss is seen", func() bool { n, _ := a.ep.Outages(); return n > 0 }, a)
	require.NoError(t, a.ep.Close()) // while it is connected again
	require.NoError(t, b.ep.Close())
}

// Connections in place of lost ones are taken from the peer alone, and only newer ones.
func TestOldAttemptsAreRefused(t *testing.T) {
	_, b := dialler(pair(t, resumes, 4096))
	peer := b.ep.peer.nonce
	b.ep.attempt.Store(5)
	for what, h := range map[string]hello{
		"another peer": {from: peer + 1, attempt: 6}, "the first": {from: peer, attempt: firstAttempt}, "none": {from: peer},
		"the same": {from: peer, attempt: 5}, "older": {from: peer, attempt: 4},
		"a lane of an older one": {from: peer, lane: 1, lanes: 1, attempt: 4}, "a lane of a newer one": {from: peer, lane: 1, lanes: 1, attempt: 6},
	} {
		require.False(t, b.ep.offer(arrival{h: h}), what)
	}
	require.Empty(t, b.ep.arrivals)
	require.False(t, newHost(t, resumes, fabric.EndpointOptions{}, 4096).ep.offer(arrival{h: hello{attempt: 2}}), "nothing was lost")
}

// A connection that await has taken before the owner heard of it is not given up for another one.
func TestConnectionsAreNotRecalledTwice(t *testing.T) {
	a, b := dialler(pair(t, resumes, 4096))
	recall(b.l, b.ep) // of a connection that is no longer parked
	write(t, a, b, 8)
	for _, h := range []*host{a, b} {
		n, why := h.ep.Outages()
		require.Zero(t, n)
		require.NoError(t, why)
	}
}

// inFlight returns an endpoint that has sent a write, an answered and an open fetch-add, a read, and a
// write; and has answered two of three reads of the peer.
func inFlight(tb testing.TB) *stage { return inFlightOn(tb, openLink(tb)) }

func inFlightOn(tb testing.TB, l *link) *stage {
	s := newStage(tb, l, 4)
	s.target(fabric.AccessAll)
	s.ep.resumes, s.ep.resp.resumes = true, true
	k := s.reg.Key()
	mem := []fabric.SGE{{Addr: k.Addr, Len: 8, LKey: s.reg.LKey()}}
	var wrs []fabric.WR
	for i, op := range []fabric.Op{fabric.OpWrite, fabric.OpFetchAdd, fabric.OpFetchAdd, fabric.OpRead, fabric.OpWrite} {
		wrs = append(wrs, fabric.WR{ID: uint64(i + 1), Op: op, Flags: fabric.FlagSignaled, Local: mem, RemoteAddr: 8, RKey: 1})
	}
	n, err := s.ep.Post(wrs)
	require.NoError(tb, err)
	require.Equal(tb, len(wrs), n)
	s.say(append((&header{op: opAtomicReply, ack: 2, seq: 1, n: resultSize}).append(nil), make([]byte, resultSize)...))
	for i := range uint32(2) {
		s.say((&header{op: opRead, ack: 2, seq: i, n: 8, rkey: k.RKey, addr: k.Addr}).append(nil))
	}
	until(tb, "all of it", func() bool {
		return s.ep.req.acked == 2 && s.ep.req.rdHead == 1 && s.ep.resp.replies.head == 2
	}, s.host)
	s.ep.resp.replies.push(reply{kind: replyRead, seq: 2, rkey: k.RKey, n: 8, val: k.Addr})
	s.ep.out.acks.executed++
	return s
}

// A peer that says that it has executed, answered or accepted what cannot be has broken the protocol,
// and nothing is done for it.
func TestHostileTallies(t *testing.T) {
	s := inFlight(t)
	q := &s.ep.req
	for what, x := range map[string]tally{
		"fewer than acknowledged":             {executed: 1, accepted: 1},
		"more than sent":                      {executed: 6, accepted: 3},
		"an atomic executed and not accepted": {executed: 3, accepted: 1},
		"an atomic accepted and not executed": {executed: 2, accepted: 2},
		"fewer accepted than answered":        {executed: 2, accepted: 0},
		"more accepted than there are":        {executed: 5, accepted: 4},
	} {
		before := *q
		f := q.resume(&x)
		require.NotNil(t, f, what)
		require.Equal(t, fabric.StatusRemoteInvalid, f.status)
		require.ErrorIs(t, f.cause, errBadTally)
		require.False(t, f.lost)
		require.Equal(t, before, *q)
	}
	p := &s.ep.resp
	for what, answered := range map[string]uint32{"an answer that was not sent": 3, "answers that are kept no longer": ^uint32(1)} {
		before := *p
		require.NotNil(t, p.resume(answered), what)
		require.Equal(t, before, *p)
	}
	require.Nil(t, q.resume(&tally{executed: 4, accepted: 3}))
	require.Equal(t, []uint32{4, 4, 3, 1}, []uint32{q.acked, q.sent, q.rdTail, q.rdHead})
	require.Nil(t, p.resume(0))
	require.Zero(t, p.replies.head, "all answers are sent again")
}

// Reads are requested once more only from a side that resumes, and only if they were accepted.
func TestHostileRepetitions(t *testing.T) {
	l := openLink(t)
	for what, c := range map[string]struct {
		resumes bool
		seq     uint32
	}{"not resumed": {false, 0}, "not accepted yet": {true, 1}, "far ahead": {true, 1 << 31}} {
		s := newStage(t, l, 4)
		s.target(fabric.AccessAll)
		s.ep.resp.resumes = c.resumes
		k := s.reg.Key()
		s.say((&header{op: opRead, n: 8, rkey: k.RKey, addr: k.Addr}).append(nil))
		s.hear()
		s.say((&header{op: opRead, flags: wireAgain, seq: c.seq, n: 8, rkey: k.RKey, addr: k.Addr}).append(nil))
		s.wantDown(fabric.StatusRemoteInvalid)
		t.Log(what)
	}
	s := newStage(t, l, 2)
	s.target(fabric.AccessAll)
	s.ep.resp.resumes = true
	k := s.reg.Key()
	s.say((&header{op: opRead, n: 8, rkey: k.RKey, addr: k.Addr}).append(nil))
	s.hear()
	again := (&header{op: opRead, flags: wireAgain, n: 8, rkey: k.RKey, addr: k.Addr}).append(nil)
	s.say(again)
	h, _ := s.hear()
	require.Equal(t, header{op: opReadReply, ack: 1, n: 8}, h)
	s.say(slices.Concat(again, again, again)) // more than the announced two at once
	s.wantDown(fabric.StatusRemoteInvalid)
}

// FuzzResume continues behind any tallies: those that cannot be change nothing; behind the others each
// request is acknowledged, in flight, requested once more or sent again, and no atomic twice.
func FuzzResume(f *testing.F) {
	f.Add(uint32(4), uint32(2), uint32(3))
	f.Add(uint32(2), uint32(0), uint32(1))
	f.Add(uint32(5), uint32(1), uint32(3))
	f.Add(uint32(6), uint32(3), uint32(9))
	f.Fuzz(func(t *testing.T, executed, answered, accepted uint32) {
		s := inFlight(t)
		q, p := &s.ep.req, &s.ep.resp
		before, was := *q, *p
		if q.resume(&tally{executed: executed, accepted: accepted}) != nil {
			require.Equal(t, before, *q)
		} else {
			require.GreaterOrEqual(t, executed, before.acked)
			require.LessOrEqual(t, executed, before.sent)
			waits := map[uint32]bool{}
			for i := q.rdHead; i != q.rdTail; i++ {
				waits[q.reads[i%maxReads]] = true
			}
			for seq := q.head; seq != executed; seq++ {
				if x := q.slot(seq); x.op != fabric.OpWrite && !x.done {
					require.True(t, waits[seq], "request %d", seq)
				}
			}
			require.Equal(t, executed, q.sent)
			require.Empty(t, q.again)
		}
		if p.resume(answered) != nil {
			require.Equal(t, was, *p)
		} else {
			require.GreaterOrEqual(t, int32(was.replies.head-answered), int32(0))
			require.LessOrEqual(t, p.replies.tail-p.replies.head, p.replies.limit)
		}
	})
}

package ibv

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/verbs"
)

// post carries the letters between two endpoints of a test.
type post struct {
	own   sync.Mutex // of both links
	boxes [2]chan []byte
	eps   [2]*endpoint
	errs  [2]chan error
	lose  func(from int, letter []byte) []byte // changes letters; nil: none
	tasks sync.WaitGroup
	busy  [2]bool
	again [2]bool
	mu    sync.Mutex
	life  context.Context
}

func newPost(tb testing.TB, a, b *endpoint) *post {
	ctx, cancel := context.WithCancel(context.Background())
	p := &post{eps: [2]*endpoint{a, b}, life: ctx}
	for i := range p.boxes {
		p.boxes[i], p.errs[i] = make(chan []byte, 100), make(chan error, 100)
	}
	tb.Cleanup(func() { cancel(); p.tasks.Wait() })
	return p
}

// rejoin starts Rejoin of an endpoint, or has it start once more.
func (p *post) rejoin(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.again[i] = true; p.busy[i] || p.life.Err() != nil {
		return
	}
	p.busy[i] = true
	p.tasks.Go(func() {
		for {
			p.mu.Lock()
			if !p.again[i] {
				p.busy[i] = false
				p.mu.Unlock()
				return
			}
			p.again[i] = false
			p.mu.Unlock()
			if err := p.eps[i].Rejoin(p.life, p.courier(i)); err != nil {
				p.errs[i] <- err
			}
		}
	})
}

func (p *post) courier(i int) fabric.Courier {
	return fabric.Courier{
		Own: func(f func()) { p.own.Lock(); defer p.own.Unlock(); f() },
		Send: func(_ context.Context, b []byte) error {
			if len(b) > fabric.MaxLetter {
				return fmt.Errorf("%d bytes", len(b))
			}
			if p.lose != nil {
				if b = p.lose(i, b); b == nil {
					return nil
				}
			}
			p.boxes[1-i] <- b
			p.rejoin(1 - i)
			return nil
		},
		Next: func(ctx context.Context) ([]byte, error) {
			select {
			case b := <-p.boxes[i]:
				return b, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		Sent: func() bool { return len(p.boxes[i]) > 0 },
	}
}

// poll polls a side and returns its completions other than OpPath, which starts Rejoin.
func (p *post) poll(s *side) (cs []fabric.Completion) {
	p.own.Lock()
	n := s.any.Poll(s.cs[:])
	_, why := s.ep.Outages()
	rejoins := why != nil || s.ep.Seeks()
	p.own.Unlock()
	for _, c := range s.cs[:n] {
		if c.Op != fabric.OpPath {
			cs = append(cs, c)
			continue
		}
		for i, e := range p.eps {
			if e == s.ep && rejoins {
				p.rejoin(i)
			}
		}
	}
	return cs
}

// fail fails the queue pair of a side, or, if silent, has the side go on to the next port.
func (p *post) fail(s *side, silent bool) {
	p.own.Lock()
	defer p.own.Unlock()
	FailQueuePairs(s.l, silent)
}

// load posts writes, reads and fetch-adds from one side to the other, each with a notification behind it,
// and checks what comes of them.
type load struct {
	*testing.T
	p        *post
	s, to    *side
	peer     *load
	rng      *rand.Rand
	made     uint64
	queue    []fabric.WR // to be posted
	open     []fabric.WR // in flight
	results  map[uint64]bool
	lost     uint64 // results
	apart    uint64 // fetch-adds that a carrier has refused
	met      bool   // a fetch-add was made when a carrier was there, or refused
	notified uint32
}

const (
	loadSlot = 4096      // of 16, the local memory of each operation
	loadLog  = 128 << 10 // what the writes write to: the number of the operation, again and again
	loadSum  = 256 << 10 // what the fetch-adds add to
)

func loads(t *testing.T, a, b *side, p *post) [2]*load {
	x := [2]*load{{T: t, p: p, s: a, to: b}, {T: t, p: p, s: b, to: a}}
	for i, l := range x {
		l.peer, l.rng, l.results = x[1-i], rand.New(rand.NewPCG(uint64(i), 7)), map[uint64]bool{}
	}
	return x
}

// make makes the next operation.
func (x *load) make() {
	k := x.made
	x.made++
	mem := x.s.mem.Bytes()[k%16*loadSlot:][:loadSlot]
	w := fabric.WR{ID: k, Flags: fabric.FlagSignaled, RKey: x.to.mem.Key().RKey, RemoteAddr: x.to.mem.Addr() + loadLog}
	n := 8
	switch k % 4 {
	case 0, 2:
		if n += 8 * x.rng.IntN(loadSlot/8); x.rng.IntN(2) == 0 {
			n = 8
			w.Flags |= fabric.FlagInline
		}
		for i := 0; i < n; i += 8 {
			binary.LittleEndian.PutUint64(mem[i:], k)
		}
		w.Op = fabric.OpWrite
	case 1:
		w.Op = fabric.OpRead
	case 3:
		w.Op, w.Operand, w.RemoteAddr = fabric.OpFetchAdd, 1, x.to.mem.Addr()+loadSum
		x.met = x.met || x.s.ep.carried.Load() && x.s.l.noAtomics
		binary.LittleEndian.PutUint64(mem, ^uint64(0)) // no result
	}
	w.Local = []fabric.SGE{fabric.NewSGE(mem[:n], x.s.mem.LKey())}
	x.queue = append(x.queue, w, fabric.WR{Op: fabric.OpWrite, Flags: fabric.FlagNotify, Imm: uint32(k)})
}

// turn posts and polls once.
func (x *load) turn(total uint64) {
	if x.made < total && len(x.queue) == 0 && len(x.open) < 16 {
		x.make()
	}
	if len(x.queue) > 0 {
		x.p.own.Lock()
		n, err := x.s.ep.Post(x.queue)
		x.p.own.Unlock()
		require.NoError(x, err)
		for _, w := range x.queue[:n] {
			if w.Flags&fabric.FlagSignaled != 0 {
				x.open = append(x.open, w)
			}
		}
		x.queue = x.queue[n:]
	}
	for _, c := range x.p.poll(x.s) {
		if c.Op == fabric.OpNotify {
			require.Equal(x, x.notified, c.Imm, "notifications come once and in order")
			if c.Imm%2 == 0 {
				require.GreaterOrEqual(x, binary.LittleEndian.Uint64(x.s.mem.Bytes()[loadLog:]), uint64(c.Imm))
			}
			x.notified++
			continue
		}
		require.NotEmpty(x, x.open, "%+v", c)
		w := x.open[0]
		x.open = x.open[1:]
		require.Equal(x, w.ID, c.ID)
		require.Equal(x, w.Op, c.Op)
		value := binary.LittleEndian.Uint64(x.s.mem.Bytes()[w.ID%16*loadSlot:])
		switch {
		case c.Op == fabric.OpFetchAdd && c.Status == fabric.StatusLostResult:
			require.ErrorIs(x, c.Err(), fabric.ErrLostResult)
			x.lost++
			continue
		case c.Op == fabric.OpFetchAdd && c.Status == fabric.StatusApart:
			require.ErrorIs(x, c.Err(), fabric.ErrNotSupported)
			require.Equal(x, ^uint64(0), value)
			x.apart++
			x.met = true
			continue
		case c.Op == fabric.OpFetchAdd:
			require.False(x, x.results[value], "fetch-add %d has the result %d of another one", w.ID, value)
			x.results[value] = true
		case c.Op == fabric.OpRead:
			require.GreaterOrEqual(x, value, w.ID-1)
			require.LessOrEqual(x, value, x.made)
		}
		require.NoError(x, c.Err())
	}
}

// turns posts and polls once on both sides, neither of which may fail.
func turns(t *testing.T, p *post, xs [2]*load, total uint64) {
	xs[0].turn(total)
	xs[1].turn(total)
	select {
	case err := <-p.errs[0]:
		require.NoError(t, err)
	case err := <-p.errs[1]:
		require.NoError(t, err)
	default:
	}
	cpu.Yield()
}

func (x *load) done(total uint64) bool {
	return x.made == total && len(x.queue)+len(x.open) == 0 && x.notified == uint32(total)
}

// check checks the memory at the end.
func (x *load) check() {
	mem := x.to.mem.Bytes()
	sum := binary.LittleEndian.Uint64(mem[loadSum:])
	require.Equal(x, uint64(len(x.results))+x.lost, sum, "each fetch-add was executed once")
	for v := range x.results {
		require.Less(x, v, sum)
	}
	require.Equal(x, (x.made-1)&^1, binary.LittleEndian.Uint64(mem[loadLog:]))
}

// Operations of both sides while queue pairs fail again and again, on one side or on both: each is
// executed once and in order, and completes once.
func TestContinuesAcrossFailures(t *testing.T) { continues(t) }

func continues(t *testing.T) {
	for _, name := range []string{"plain", "guarded", "ports", "guarded ports", "host atomics", "guarded host atomics", "ports, host atomics"} {
		t.Run(name, func(t *testing.T) {
			guard := strings.Contains(name, "guarded")
			o := Options{Resume: true, Guard: &guard, HostAtomics: strings.Contains(name, "host atomics")}
			moves := strings.Contains(name, "ports")
			if moves {
				o.Spares = sparesOf(t)
			}
			a, b := pairOf(t, o, fabric.EndpointOptions{Depth: 64, PeerTimeout: testutil.Limit})
			require.True(t, a.ep.keeps.Load(), "the device tells what it has executed")
			p := newPost(t, a.ep, b.ep)
			xs := loads(t, a, b, p)
			total := uint64(2000 / testutil.Slow())
			rng := rand.New(rand.NewPCG(7, 7))
			failures, since := 0, uint64(0)
			end := time.Now().Add(testutil.Limit)
			for !xs[0].done(total) || !xs[1].done(total) {
				require.True(t, time.Now().Before(end), "a: %d made, %d in flight, %d notified; b: %d, %d, %d", xs[0].made, len(xs[0].open), xs[0].notified, xs[1].made, len(xs[1].open), xs[1].notified)
				// Failures while operations are in flight, and during what follows.
				if made := xs[0].made + xs[1].made; made >= since || rng.IntN(2000) == 0 {
					which := rng.IntN(3)
					for i, x := range xs {
						if which == i {
							continue
						}
						p.fail(x.s, moves && rng.IntN(3) == 0)
						failures++
					}
					since = made + uint64(rng.IntN(100))
				}
				turns(t, p, xs, total)
			}
			xs[0].check()
			xs[1].check()
			n, _ := a.ep.Outages()
			require.Positive(t, n)
			require.Equal(t, moves, a.l.spares.opened() != nil)
			lost := xs[0].lost + xs[1].lost
			t.Logf("%d failures, %d connections lost, of %d fetch-adds %d results", failures, n, total/2, lost)
			if a.l.noAtomics {
				require.Zero(t, lost, "the peer keeps results")
			}
		})
	}
}

// posts posts a request that is taken.
func posts(t *testing.T, a *side, w fabric.WR) {
	n, err := a.ep.Post([]fabric.WR{w})
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// gets polls both sides until a has n completions.
func (p *post) gets(t *testing.T, a, b *side, n int) (got []fabric.Completion) {
	testutil.Eventually(t, testutil.Limit, func() bool {
		p.poll(b)
		got = append(got, p.poll(a)...)
		return len(got) >= n
	}, "completions")
	require.Len(t, got, n)
	return got
}

// A peer that does not answer is gone, soon; one that is down says so at once; and what it says of its
// queue pair is checked.
func TestResumptionThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(from int, letter []byte) []byte
		want fabric.Status
	}{
		"silent":    {func(int, []byte) []byte { return nil }, fabric.StatusPeerGone},
		"ended":     {func(from int, b []byte) []byte { return b[:len(b)*(1-from)] }, fabric.StatusPeerGone},
		"malformed": {func(from int, b []byte) []byte { return append(b, make([]byte, from)...) }, fabric.StatusRemoteInvalid},
		"another port": {func(from int, b []byte) []byte {
			if from == 1 && len(b) > 0 {
				b[6] = 1
			}
			return b
		}, fabric.StatusRemoteInvalid},
		"names unasked": {func(from int, b []byte) []byte {
			if from == 1 && len(b) > 0 {
				b[5] = kindNames
			}
			return b
		}, fabric.StatusRemoteInvalid},
		"claims": {func(from int, b []byte) []byte {
			if from == 1 && len(b) > 0 {
				binary.LittleEndian.PutUint32(b[12:], (binary.LittleEndian.Uint32(b[12:])+100)&psnMask)
			}
			return b
		}, fabric.StatusRemoteInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pairOf(t, Options{Resume: true}, fabric.EndpointOptions{PeerTimeout: 2 * time.Second})
			p := newPost(t, a.ep, b.ep)
			p.lose = c.lose
			began := time.Now()
			p.fail(a, false)
			w := a.write(b, 8, fabric.FlagSignaled)
			posts(t, a, w)
			got := p.gets(t, a, b, 2)
			require.Equal(t, fabric.StatusFlushed, got[0].Status)
			require.Equal(t, fabric.OpDown, got[1].Op)
			require.Equal(t, c.want, got[1].Status)
			require.ErrorIs(t, a.ep.Err(), fabric.ErrDown)
			t.Log(time.Since(began), a.ep.Err())
		})
	}
}

// A peer that is slow to answer, because its host is, is not taken for gone when only a queue pair has failed.
func TestSlowAnswerIsTaken(t *testing.T) {
	a, b := pairOf(t, Options{Resume: true}, fabric.EndpointOptions{PeerTimeout: 8 * time.Second})
	p := newPost(t, a.ep, b.ep)
	p.lose = func(from int, letter []byte) []byte {
		if from == 1 && letter[5] == 0 {
			time.Sleep(a.ep.opt.PeerTimeout / 6) // sleep: a slow host
		}
		return letter
	}
	p.fail(a, false)
	w := a.write(b, 8, fabric.FlagSignaled)
	posts(t, a, w)
	got := p.gets(t, a, b, 1)
	require.NoError(t, got[0].Err())
}

// A queue pair of rdma_rxe that neither completes a request nor fails is replaced.
func TestStuckQueuePairIsReplaced(t *testing.T) {
	guard := true
	a, b := pairOf(t, Options{Resume: true, Guard: &guard}, fabric.EndpointOptions{PeerTimeout: 10 * testutil.Limit})
	p := newPost(t, a.ep, b.ep)
	require.NoError(t, b.ep.qp.ToErr()) // it takes no packets, without a word
	w := a.write(b, 8, fabric.FlagSignaled)
	posts(t, a, w)
	a.ep.moved -= 2*(maxRetries+1)*a.ep.timeout + 1
	var got []fabric.Completion
	testutil.Eventually(t, testutil.Limit, func() bool {
		got = append(got, p.poll(a)...)
		if lost, _ := a.ep.Outages(); lost > 0 {
			p.poll(b)
		}
		return len(got) > 0
	}, "the write is complete")
	require.NoError(t, got[0].Err())
	require.Equal(t, uint64(1), a.ep.again.lost)
}

// A queue pair is not replaced because of a pause before a request: not before an answer, which no Post
// precedes, and not when the owner takes a completion late.
func TestPauseIsNotStuck(t *testing.T) {
	guard := true
	a, b := pairOf(t, Options{Resume: true, Guard: &guard, HostAtomics: true}, fabric.EndpointOptions{PeerTimeout: testutil.Limit})
	keeps := func() {
		t.Helper()
		lost, why := b.ep.Outages()
		require.Zero(t, lost, "%v", why)
	}
	pause := 2*(maxRetries+1)*b.ep.timeout + 1
	b.ep.moved -= pause
	w := a.write(b, 8, fabric.FlagSignaled)
	w.Op = fabric.OpFetchAdd
	posts(t, a, w)
	testutil.Eventually(t, testutil.Limit, func() bool {
		b.l.Poll(b.cs[:])
		return b.ep.head != b.ep.tail
	}, "an answer")
	look(b.l)
	keeps()
	require.NoError(t, a.wait(b)[0].Err())

	testutil.Eventually(t, testutil.Limit, func() bool {
		sleeps, err := b.l.Arm()
		require.NoError(t, err)
		return sleeps && b.ep.head == b.ep.tail
	}, "the answer is acknowledged")
	posts(t, b, b.write(a, 8, fabric.FlagSignaled))
	testutil.Eventually(t, testutil.Limit, func() bool {
		_, n := readyFDs(b.l.FD())
		return n > 0
	}, "a completion")
	b.ep.moved -= pause
	sleeps, err := b.l.Arm()
	require.NoError(t, err)
	require.False(t, sleeps)
	keeps()
	require.NoError(t, b.wait(a)[0].Err())
}

// The owner looks for endpoints to continue, and finds a port down, while others are being connected.
func TestConnectsBesideALook(t *testing.T) {
	a, b := pairOf(t, Options{Resume: true}, fabric.EndpointOptions{})
	require.True(t, a.ep.keeps.Load())
	var ended atomic.Bool
	var owner sync.WaitGroup
	defer owner.Wait()
	defer ended.Store(true)
	owner.Go(func() {
		for !ended.Load() {
			look(a.l)
			a.l.abandon(&a.l.adapter)
		}
	})
	for range 4 {
		x, err := a.l.NewEndpoint(fabric.EndpointOptions{})
		require.NoError(t, err)
		y, err := b.l.NewEndpoint(fabric.EndpointOptions{})
		require.NoError(t, err)
		join(t, x, y)
	}
}

// A request whose local piece is bad fails each queue pair that it is posted to: rdma_rxe says the same of a
// port without its address. It ends the endpoint, with the reason.
func TestBadPieceEndsResumption(t *testing.T) {
	a, b := pairOf(t, Options{Resume: true}, fabric.EndpointOptions{PeerTimeout: testutil.Limit})
	p := newPost(t, a.ep, b.ep)
	w := a.write(b, 8, fabric.FlagSignaled)
	w.Local[0].LKey ^= 0x00a5a500
	posts(t, a, w)
	got := p.gets(t, a, b, 2)
	require.Equal(t, fabric.StatusLocalProtection, got[0].Status)
	require.Equal(t, fabric.OpDown, got[1].Op)
	lost, _ := a.ep.Outages()
	require.LessOrEqual(t, lost, uint64(maxStuck))
}

// An endpoint that is closed meanwhile reports nothing more, and the other one learns of it.
func TestCloseDuringResumption(t *testing.T) {
	a, b := pairOf(t, Options{Resume: true}, fabric.EndpointOptions{PeerTimeout: testutil.Limit})
	p := newPost(t, a.ep, b.ep)
	closed, said := make(chan struct{}), make(chan struct{}, 10)
	p.lose = func(from int, letter []byte) []byte {
		if from == 0 {
			said <- struct{}{}
			<-closed
		}
		return letter
	}
	p.fail(a, false)
	testutil.Eventually(t, testutil.Limit, func() bool {
		p.poll(a)
		return len(said) > 0
	}, "a letter is written")
	testutil.Holding(&p.own, func() { require.NoError(t, a.ep.Close()) })
	close(closed)
	testutil.Eventually(t, testutil.Limit, func() bool { p.poll(a); p.poll(b); return b.ep.Err() != nil }, "the other side is down")
	require.ErrorIs(t, b.ep.Err(), fabric.ErrPeerGone)
}

// What the peer says it expects decides what is posted again.
func TestAdopt(t *testing.T) {
	const first = psnMask - 1 // wraps
	build := func(fence bool) *endpoint {
		e := &endpoint{l: &Link{}, slots: make([]slot, 8), head: 5, tail: 10, psn: 77}
		e.again = &resumption{e: e}
		r := e.again
		r.reqs, r.pieces, r.maxSGE, r.mtuShift, r.psn, r.posted = make([]kept, 8), make([]verbs.SGE, 8), 1, 10, first, 5
		for i, op := range []verbs.SendOp{verbs.OpWrite, verbs.OpRead, verbs.OpFetchAdd, verbs.OpWriteWithImm, verbs.OpWrite} {
			w := verbs.SendWR{ID: uint64(5 + i), Op: op, SGL: []verbs.SGE{{Addr: 1 << 20, Len: []uint32{2049, 1025, 8, 0, 1024}[i]}}}
			if fence && i == 3 {
				w.Flags = verbs.SendFence
			}
			r.add([]verbs.SendWR{w})
		}
		r.sent(9) // the last one is not with the device
		return e
	}
	const same, empty, lost = 1, 2, 3
	for _, c := range []struct {
		packets uint32
		fence   bool
		want    [5]int // what is posted again
	}{
		{0, false, [5]int{same, same, same, same, same}},
		{2, false, [5]int{same, same, same, same, same}}, // a part of the first write
		{3, false, [5]int{empty, same, same, same, same}},
		{5, false, [5]int{empty, same, same, same, same}}, // the read was executed, its answer is lost
		{6, false, [5]int{empty, same, lost, same, same}},
		{7, false, [5]int{empty, same, lost, empty, same}},
		{7, true, [5]int{empty, empty, empty, empty, same}}, // behind a fence: both were complete
	} {
		e := build(c.fence)
		r := e.again
		r.theirs.expected = (first + c.packets) & psnMask
		require.NoError(t, r.adopt())
		for i := range c.want {
			x, s := r.of(uint32(5+i)), &e.slots[(5+i)&7]
			got := same
			switch {
			case s.flags&slotLost != 0:
				got = lost
				require.NotZero(t, x.wr.Flags&verbs.SendSignaled)
				fallthrough
			case x.wr.Op == verbs.OpWrite && len(x.wr.SGL) == 0:
				if got == same {
					got = empty
				}
				require.Empty(t, x.wr.SGL)
				require.Equal(t, uint32(1), x.packets)
			}
			require.Equal(t, c.want[i], got, "%+v: request %d", c, i)
		}
		require.Equal(t, uint32(5), r.posted)
		require.Equal(t, uint32(77), r.psn)
	}
	for _, packets := range []uint32{8, 100, 1 << 23, psnMask} { // what was not posted, or was complete before
		e := build(false)
		e.again.theirs.expected = (first + packets) & psnMask
		require.ErrorIs(t, e.again.adopt(), errBadTally)
	}
	e := build(false)
	e.again.of(5).packets = maxSpan
	e.again.theirs.expected = first
	require.ErrorContains(t, e.again.adopt(), "in flight")
}

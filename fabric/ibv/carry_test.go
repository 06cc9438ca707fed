package ibv

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/fallback"
	"github.com/seed33544411/rma/fabric/tcp"
	"github.com/seed33544411/rma/internal/testutil"
)

// overTCP returns two sides whose endpoints can continue over tcp.
func overTCP(t *testing.T, o Options, eo fabric.EndpointOptions) (a, b *side) {
	o.Resume = true
	a, b = pairBy(t, o, eo, func(first fabric.Link) fabric.Link {
		second, err := tcp.Open(&tcp.Config{Named: true})
		require.NoError(t, err)
		l, err := fallback.New(first, second)
		require.NoError(t, err)
		return l
	})
	require.True(t, a.ep.again.carries)
	return a, b
}

// Operations of both sides while queue pairs fail again and again, and then in silence, so that tcp carries the rest:
// each is executed once and in order, and completes once. Atomics of the device fail alone, and those of the processor
// go on.
func TestCarriedOn(t *testing.T) { carriedOn(t) }

func carriedOn(t *testing.T) {
	for _, name := range []string{"plain", "guarded", "ports", "host atomics", "guarded host atomics", "ports, host atomics"} {
		t.Run(name, func(t *testing.T) {
			guard := strings.Contains(name, "guarded")
			o := Options{Guard: &guard, HostAtomics: strings.Contains(name, "host atomics")}
			if strings.Contains(name, "ports") {
				o.Spares = sparesOf(t)
			}
			a, b := overTCP(t, o, fabric.EndpointOptions{Depth: 64, PeerTimeout: testutil.Limit})
			p := newPost(t, a.ep, b.ep)
			xs := loads(t, a, b, p)
			total := uint64(2000 / testutil.Slow())
			rng := rand.New(rand.NewPCG(7, 7))
			since := uint64(0)
			testutil.Eventually(t, testutil.Limit, func() bool {
				if made := xs[0].made + xs[1].made; made >= since || rng.IntN(2000) == 0 {
					which := rng.IntN(3)
					for i, x := range xs {
						if which != i {
							p.fail(x.s, made > total && rng.IntN(2) == 0)
						}
					}
					since = made + uint64(rng.IntN(100))
				}
				turns(t, p, xs, total)
				if !xs[0].done(total) || !xs[1].done(total) {
					return false
				}
				met := xs[0].met && xs[1].met
				if !met { // tcp has not carried yet, or no fetch-add of one side since
					total += 100
				}
				return met
			}, "all is executed, and fetch-adds of both sides have met the carrier")
			xs[0].check()
			xs[1].check()
			n, _ := a.ep.Outages()
			lost, apart := xs[0].lost+xs[1].lost, xs[0].apart+xs[1].apart
			t.Logf("%d connections lost, of %d fetch-adds %d results, %d not executed", n, total/2, lost, apart)
			host := a.l.noAtomics
			require.Equal(t, host, lost+apart == 0)
			for _, s := range []*side{a, b} {
				over, atomics := s.any.(fabric.Fork).Over(s.ep)
				require.Equal(t, "tcp", over.Name())
				require.Equal(t, host, atomics)
			}
		})
	}
}

// Atomics that the peer's processor executes, when the queue pairs are lost: those that the peer has read, and whose answers
// do not arrive, and those that it has not.
func TestCarriedAtomics(t *testing.T) {
	a, b := overTCP(t, Options{HostAtomics: true}, fabric.EndpointOptions{Depth: 64, PeerTimeout: testutil.Limit})
	p := newPost(t, a.ep, b.ep)
	const half = maxAsks / 2
	fetchAdd := func(i uint64) {
		w := a.write(b, 8, fabric.FlagSignaled)
		w.Op, w.Operand, w.ID = fabric.OpFetchAdd, 1, i
		w.Local[0].Addr += 8 * i
		posts(t, a, w)
	}
	binary.NativeEndian.PutUint64(b.mem.Bytes(), 0)
	for i := range uint64(half) {
		fetchAdd(i)
	}
	testutil.Eventually(t, testutil.Limit, func() bool { a.l.pump(); return a.ep.head == half }, "b's device has half of them")
	require.NoError(t, b.ep.qp.ToErr())
	for i := range uint64(half) {
		fetchAdd(half + i)
	}
	p.fail(a, true)
	for i, c := range p.gets(t, a, b, 2*half) {
		require.Equal(t, fabric.Completion{ID: uint64(i), Op: fabric.OpFetchAdd}, c)
		require.EqualValues(t, i, binary.NativeEndian.Uint64(a.mem.Bytes()[8*i:]))
	}
	fetchAdd(0)
	require.NoError(t, p.gets(t, a, b, 1)[0].Err())
	require.True(t, a.ep.carried.Load())
	require.EqualValues(t, 2*half, binary.NativeEndian.Uint64(a.mem.Bytes()))
}

// An endpoint returns to its own port when that is active again and the peer answers there, with the operations of both sides in flight.
func TestGoesBack(t *testing.T) {
	for _, name := range []string{"plain", "guarded", "host atomics", "guarded host atomics"} {
		t.Run(name, func(t *testing.T) {
			guard := strings.Contains(name, "guarded")
			a, b := overTCP(t, Options{Guard: &guard, HostAtomics: strings.Contains(name, "host atomics")}, fabric.EndpointOptions{Depth: 64, PeerTimeout: testutil.Limit})
			p := newPost(t, a.ep, b.ep)
			xs := loads(t, a, b, p)
			total := uint64(200)
			until := func(what string, is func() bool) {
				testutil.Eventually(t, testutil.Limit, func() bool {
					turns(t, p, xs, total)
					if is() && xs[0].done(total) && xs[1].done(total) {
						return true
					}
					if !is() && total < xs[0].made+8 {
						total += 100
					}
					return false
				}, what)
				total += 100
			}
			on := func(carried bool) func() bool {
				return func() bool {
					up := true
					for _, s := range []*side{a, b} {
						p.own.Lock()
						_, why := s.ep.Outages()
						p.own.Unlock()
						up = up && why == nil && s.ep.carried.Load() == carried
					}
					return up
				}
			}
			for round := range 3 {
				p.fail(a, true)
				until("tcp carries both", on(true))
				require.GreaterOrEqual(t, a.ep.again.away.pause, silentPause)
				p.tryOwnPorts(a) // one side, or both
				if round > 0 {
					p.tryOwnPorts(b)
				}
				until("both have their own port", on(false))
				require.Nil(t, a.ep.carry)
				require.Nil(t, a.ep.again.retired)
			}
			xs[0].check()
			xs[1].check()
			require.NotEqual(t, a.l.noAtomics, xs[0].apart+xs[1].apart > 0)
		})
	}
}

// bothCarried returns two sides that tcp carries, and a write which can be posted again.
func bothCarried(t *testing.T) (a, b *side, p *post, w fabric.WR) {
	a, b = overTCP(t, Options{}, fabric.EndpointOptions{PeerTimeout: 2 * time.Second})
	p = newPost(t, a.ep, b.ep)
	p.fail(a, true)
	w = a.write(b, 8, fabric.FlagSignaled)
	posts(t, a, w)
	require.NoError(t, p.gets(t, a, b, 1)[0].Err())
	testutil.Eventually(t, testutil.Limit, func() bool { p.poll(a); p.poll(b); return a.ep.carried.Load() && b.ep.carried.Load() }, "both are carried")
	return a, b, p, w
}

func (p *post) tryOwnPorts(s *side) {
	p.own.Lock()
	defer p.own.Unlock()
	TryOwnPorts(s.l)
}

// A port that does not reach the peer, and a peer that does not answer, or not as it should, leave the carrier as it is.
func TestStaysWithItsCarrier(t *testing.T) {
	for name, lose := range map[string]func(from int, letter []byte) []byte{
		"silent": func(_ int, b []byte) []byte { return nil },
		"another address": func(from int, b []byte) []byte {
			x, err := parseResumeLetter(b)
			if a, aerr := parseAddress(x.address[:]); err == nil && aerr == nil && from == 1 {
				a.qpn ^= 1 << 20
				x.address = [addrSize]byte(a.append(nil))
			}
			return x.append(nil)
		},
		"no address": func(from int, b []byte) []byte { return append(b[:16:16], make([]byte, addrSize)...) },
		"malformed":  func(from int, b []byte) []byte { return append(b, make([]byte, from)...) },
		"another number": func(from int, b []byte) []byte { // a lower one would be agreed on
			if from == 1 {
				copy(b[12:], []byte{0xff, 0xff, 0xff})
			}
			return b
		},
		"another round": func(from int, b []byte) []byte { b[8] += byte(from); return b },
	} {
		t.Run(name, func(t *testing.T) {
			a, b, p, w := bothCarried(t)
			tried := make(chan struct{}, 100)
			p.lose = func(from int, b []byte) []byte {
				if len(b) == 0 { // at the end
					return b
				}
				if b[5] == kindTrial {
					tried <- struct{}{}
				}
				return lose(from, b)
			}
			p.tryOwnPorts(a)
			testutil.Eventually(t, testutil.Limit, func() bool { p.poll(a); p.poll(b); return len(tried) > 0 }, "a trial")
			idle := func(i int) bool { p.mu.Lock(); defer p.mu.Unlock(); return !p.busy[i] }
			testutil.Eventually(t, testutil.Limit, func() bool { p.poll(a); p.poll(b); return idle(0) && idle(1) }, "it is over")
			require.True(t, a.ep.carried.Load())
			posts(t, a, w)
			require.NoError(t, p.gets(t, a, b, 1)[0].Err())
			n, why := a.ep.Outages()
			require.NoError(t, why)
			require.EqualValues(t, 1, n)
			require.Equal(t, 2*silentPause, a.ep.again.away.pause)
		})
	}
}

// A carrier that is lost while the endpoint leaves it ends the endpoint, and what a peer claims to have notified of is waited for no longer than
// a connection may take.
func TestLeavesALostCarrier(t *testing.T) {
	for name, spoil := range map[string]func(p *post, letter []byte) []byte{
		"lost": func(p *post, b []byte) []byte {
			p.own.Lock()
			defer p.own.Unlock()
			p.eps[1].again.retired.close()
			return b
		},
		"claims": func(_ *post, b []byte) []byte { return b },
	} {
		t.Run(name, func(t *testing.T) {
			a, b, p, _ := bothCarried(t)
			p.lose = func(from int, letter []byte) []byte {
				if from == 1 && len(letter) > 0 && letter[5] == kindStopped {
					letter[12]++
					return spoil(p, letter)
				}
				return letter
			}
			p.tryOwnPorts(a)
			got := p.gets(t, a, b, 1)
			require.Equal(t, fabric.OpDown, got[0].Op)
			require.ErrorIs(t, a.ep.Err(), fabric.ErrDown)
		})
	}
}

// What the peer says about its carrier is checked, and a carrier that nobody connects with is not waited for without end.
func TestCarrierThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		tell func(b []byte, p *post) []byte // changes the peer's letters about it
		want fabric.Status
	}{
		"no address":  {func(b []byte, _ *post) []byte { return b[:resumeSize] }, fabric.StatusRemoteInvalid},
		"bad address": {func(b []byte, _ *post) []byte { return append(b[:resumeSize], "somewhere"...) }, fabric.StatusRemoteInvalid},
		"another's": {func(b []byte, p *post) []byte {
			ep, err := p.eps[1].l.carriers(fabric.EndpointOptions{})
			if err != nil {
				return nil
			}
			return append(b[:resumeSize], ep.Address()...)
		}, fabric.StatusPeerGone},
		"its own": {func(b []byte, p *post) []byte { return append(b[:resumeSize], p.eps[0].carry.ep.Address()...) }, fabric.StatusRemoteInvalid},
		"twice": {func(b []byte, p *post) []byte {
			p.boxes[0] <- b
			return b
		}, fabric.StatusRemoteInvalid},
		"then another": {func(b []byte, _ *post) []byte {
			if b[5] == kindReady {
				b[len(b)-1] ^= 1
			}
			return b
		}, fabric.StatusRemoteInvalid},
		"answers unasked": {func(b []byte, _ *post) []byte {
			if b[5] == kindReady {
				b[16] = 1
				b = slices.Insert(b, resumeSize, make([]byte, answerSize)...)
			}
			return b
		}, fabric.StatusRemoteInvalid},
		"claims": {func(b []byte, _ *post) []byte {
			binary.LittleEndian.PutUint32(b[12:], (binary.LittleEndian.Uint32(b[12:])+100)&psnMask)
			return b
		}, fabric.StatusRemoteInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := overTCP(t, Options{}, fabric.EndpointOptions{PeerTimeout: 2 * time.Second})
			p := newPost(t, a.ep, b.ep)
			p.lose = func(from int, letter []byte) []byte {
				if from == 0 || len(letter) == 0 || letter[6] != lastAttempt {
					return letter
				}
				return c.tell(letter, p)
			}
			p.fail(a, true)
			posts(t, a, a.write(b, 8, fabric.FlagSignaled))
			got := p.gets(t, a, b, 2)
			require.Equal(t, fabric.StatusFlushed, got[0].Status)
			require.Equal(t, fabric.OpDown, got[1].Op)
			require.Equal(t, c.want, got[1].Status, "%v", a.ep.Err())
			is, _ := a.l.Carries(a.ep)
			require.False(t, is)
		})
	}
}

// A letter about a carrier to an endpoint that has none.
func TestCarrierUnasked(t *testing.T) {
	a, b := pairOf(t, Options{Resume: true}, fabric.EndpointOptions{PeerTimeout: testutil.Limit})
	p := newPost(t, a.ep, b.ep)
	p.lose = func(from int, letter []byte) []byte {
		x, err := parseResumeLetter(letter)
		if from == 0 || err != nil {
			return letter
		}
		x.attempt, x.carrier = lastAttempt, []byte("somewhere")
		return x.append(nil)
	}
	p.fail(a, false)
	got := p.gets(t, a, b, 1)
	require.Equal(t, fabric.Completion{Op: fabric.OpDown, Status: fabric.StatusRemoteInvalid}, got[0])
}

// An endpoint with a carrier ends with it, on either side: what is outstanding completes, and nothing is reported of one
// that was closed. Letters end nothing.
func TestCarrierEnds(t *testing.T) {
	a, b := overTCP(t, Options{}, fabric.EndpointOptions{PeerTimeout: testutil.Limit})
	p := newPost(t, a.ep, b.ep)
	p.fail(a, true)
	w := a.write(b, 8, fabric.FlagSignaled)
	posts(t, a, w)
	require.NoError(t, p.gets(t, a, b, 1)[0].Err())
	testutil.Eventually(t, testutil.Limit, func() bool { p.poll(a); p.poll(b); return b.ep.carried.Load() }, "both are carried")
	for i := range p.boxes {
		for _, letter := range [][]byte{nil, make([]byte, resumeSize)} {
			p.boxes[i] <- letter
			p.rejoin(i)
		}
	}
	testutil.Eventually(t, testutil.Limit, func() bool { return len(p.boxes[0])+len(p.boxes[1]) == 0 }, "the letters are read")
	testutil.Holding(&p.own, func() {
		w.ID = 7
		posts(t, a, w) // b does not poll
		require.NoError(t, b.ep.Close())
	})
	got := p.gets(t, a, b, 2)
	require.Equal(t, uint64(7), got[0].ID)
	require.Contains(t, []fabric.Status{fabric.StatusPeerGone, fabric.StatusFlushed}, got[0].Status)
	require.Equal(t, fabric.OpDown, got[1].Op)
	require.Equal(t, fabric.StatusPeerGone, got[1].Status)
	require.ErrorIs(t, a.ep.Err(), fabric.ErrDown)
	n, err := a.ep.Post([]fabric.WR{w})
	require.Zero(t, n)
	require.ErrorIs(t, err, fabric.ErrDown)
}

// More requests than the carrier takes at a time are posted as it makes room.
func TestCarrierIsFull(t *testing.T) {
	a, b := overTCP(t, Options{}, fabric.EndpointOptions{Depth: 128, PeerTimeout: testutil.Limit})
	p := newPost(t, a.ep, b.ep)
	p.fail(a, true)
	ws := make([]fabric.WR, a.ep.depth)
	for i := range ws {
		ws[i] = a.write(b, 4096, fabric.FlagSignaled|fabric.FlagNotify)
		ws[i].ID, ws[i].Imm = uint64(i), uint32(i)
	}
	for range 10 {
		n, err := a.ep.Post(ws)
		require.NoError(t, err)
		require.Positive(t, n)
		done, told := 0, 0
		testutil.Eventually(t, testutil.Limit, func() bool {
			for _, c := range p.poll(a) {
				require.NoError(t, c.Err())
				require.Equal(t, uint64(done), c.ID)
				done++
			}
			for _, c := range p.poll(b) {
				require.Equal(t, fabric.Completion{EP: b.ep.id, Op: fabric.OpNotify, Imm: uint32(told), Bytes: 4096}, c)
				told++
			}
			return done == n && told == n
		}, "all are complete")
	}
	require.True(t, a.ep.carried.Load())
}

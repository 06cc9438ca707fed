package rma

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bringup"
	"github.com/seed33544411/rma/internal/testutil"
)

// rails opens two ranks with a connection over a network of that kind, or tcp, and rails besides.
func rails(t *testing.T, device, list string) []*Engine {
	if device == "tcp" {
		return openWith(t, 2, "tcp", func(c *Config) { c.Rails = list })
	}
	names := map[string]string{}
	name := func(kind string) string {
		if names[kind] == "" {
			names[kind] = network(t, kind)
		}
		return names[kind]
	}
	device, kinds := name(device), strings.Split(list, ",")
	for i, kind := range kinds {
		kinds[i] = name(kind)
	}
	return openWith(t, 2, "", func(c *Config) { c.Device, c.Rails = device, strings.Join(kinds, ",") })
}

// onRails runs f over every kind of link that has rails.
func onRails(t *testing.T, f func(t *testing.T, es []*Engine)) {
	for device, list := range map[string]string{
		"sim": "sim", "simhard": "simhard,sim", "tcp": "127.0.0.2, 127.0.0.3",
	} {
		t.Run(device, func(t *testing.T) {
			t.Parallel()
			es := rails(t, device, list)
			connectRails(t, es)
			f(t, es)
		})
	}
}

// connectRails waits until all rails between the two ranks are connected.
func connectRails(t *testing.T, es []*Engine) {
	mems, keys := share(t, es, 64)
	require.NoError(t, es[0].Peer(1).Put(keys[1].At(0), mems[0].Slice(0, 8)).Wait(testutil.Context(t, testutil.Limit)))
	testutil.Eventually(t, testutil.Limit, func() bool {
		for r, e := range es {
			s := e.Peer(1 - r).Stats().Rails
			if len(s) < 2 || slices.ContainsFunc(s, func(r RailStats) bool { return !r.Up }) {
				return false
			}
		}
		return true
	}, "rails connected")
}

// parts returns the sum of the parts over rails other than the first.
func parts(p *Peer) (n uint64) {
	for _, r := range p.Stats().Rails[1:] {
		n += r.Parts
	}
	return n
}

func TestRailsCarryPutsAndGets(t *testing.T) {
	onRails(t, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		const size = 1 << 20
		mems, keys := share(t, es, 2*size)
		rng := rand.New(rand.NewPCG(1, 2))
		p, src, dst := es[0].Peer(1), mems[0].Bytes(), mems[1].Bytes()
		model := make([]byte, 2*size)
		for range 60 {
			n := 1 + rng.IntN(size>>(5*rng.IntN(2))) // simhard moves 64 KiB at once
			at, to := rng.IntN(2*size-n+1), rng.IntN(2*size-n+1)
			testutil.Fill(src[at:at+n], rng.Uint64(), 0)
			copy(model[to:], src[at:at+n])
			require.NoError(t, p.Put(keys[1].At(to), mems[0].Slice(at, n)).Wait(ctx))
			require.Equal(t, model[to:to+n], dst[to:to+n])
			at, to = rng.IntN(2*size-n+1), rng.IntN(2*size-n+1)
			want := slices.Clone(dst[to : to+n])
			require.NoError(t, p.Get(mems[0].Slice(at, n), keys[1].At(to)).Wait(ctx))
			require.Equal(t, want, src[at:at+n])
		}
		require.Equal(t, model, dst)
		require.Positive(t, parts(p))
		s := p.Stats()
		require.EqualValues(t, 60+1, s.Puts)
		require.EqualValues(t, 60, s.Gets)
	})
}

// Puts of many sizes into overlapping ranges, signals, atomics, vectors, accumulates and
// fences without waits leave what their order says.
func TestRailsKeepTheOrder(t *testing.T) {
	onRails(t, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		const size, words = 1 << 18, 64
		mems, keys := share(t, es, size+words)
		local, err := es[0].Alloc(8 * size)
		require.NoError(t, err)
		p, dst := es[0].Peer(1), mems[1].Bytes()
		rng := rand.New(rand.NewPCG(3, 4))
		model := make([]byte, size+words)
		var reqs []Request
		var sum uint64
		used := 0
		fresh := func(n int) (Buffer, []byte) {
			if used+n > len(local.Bytes()) {
				require.NoError(t, WaitAll(ctx, reqs...))
				reqs, used = reqs[:0], 0
			}
			used += n
			b := local.Bytes()[used-n : used]
			testutil.Fill(b, rng.Uint64(), 0)
			return local.Slice(used-n, n), b
		}
		for i := range 300 {
			n := 8 * (1 + rng.IntN(1<<(3+rng.IntN(12))))
			to := 8 * rng.IntN((size-n)/8+1)
			switch rng.IntN(6) {
			case 0: // a piece on top of the others
				n = 8
				fallthrough
			case 1, 2:
				b, mem := fresh(n)
				reqs = append(reqs, p.Put(keys[1].At(to), b))
				copy(model[to:], mem)
			case 3:
				if rng.IntN(4) == 0 { // long pieces, which use the rails
					n, to = size/2, 8*rng.IntN(size/16+1)
				}
				b, mem := fresh(n)
				reqs = append(reqs, p.PutV([]Span{keys[1].Slice(to, n/2), keys[1].Slice(to+n/2, n-n/2)}, []Buffer{b}))
				copy(model[to:], mem)
			case 4:
				b, mem := fresh(n)
				copy(mem, make([]byte, n))
				want := slices.Clone(model[to : to+n])
				r := p.Get(b, keys[1].At(to))
				require.NoError(t, r.Wait(ctx))
				require.Equal(t, want, mem, "operation %d", i)
			case 5:
				b, mem := fresh(n)
				sum++
				reqs = append(reqs, p.Put(keys[1].At(to), b), p.FetchAdd(keys[1].At(size), 1).Request)
				copy(model[to:], mem)
				if rng.IntN(2) == 0 {
					p.Fence()
				}
			}
		}
		require.NoError(t, p.Flush().Wait(ctx))
		require.NoError(t, WaitAll(ctx, reqs...))
		binary.NativeEndian.PutUint64(model[size:], sum)
		require.Equal(t, model, dst[:size+words])
		require.Positive(t, parts(p))
	})
}

// A signal, a small put and a message behind a divided put come after all of its parts.
func TestNothingOvertakesADividedPut(t *testing.T) { testOvertaking(t, 1<<15) }

// The same holds for a put that is too short to be divided and uses any of the rails.
func TestNothingOvertakesAPutOnAnotherRail(t *testing.T) { testOvertaking(t, 1<<10) }

func testOvertaking(t *testing.T, n int) {
	onRails(t, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		const turns = 60
		mems, keys := share(t, es, n+64)
		p, src, dst := es[0].Peer(1), mems[0].Bytes(), mems[1].Bytes()
		whole := func(v uint64) error {
			for at := 0; at < n; at += 512 {
				if got := testutil.Load64(dst[at:]); got < v {
					return fmt.Errorf("byte %d has the put %d, behind it is %d", at, got, v)
				}
			}
			return nil
		}
		var stop atomic.Bool
		seen := watch(es[1], &stop, func() error { return whole(testutil.Load64(dst[n:])) })
		t.Cleanup(func() { stop.Store(true); require.NoError(t, <-seen) })
		for v := uint64(1); v <= turns; v++ {
			for at := 0; at < n; at += 512 {
				binary.NativeEndian.PutUint64(src[at:], v)
			}
			big := p.Put(keys[1].At(0), mems[0].Slice(0, n))
			var sig Request
			way := v % 3
			if strings.HasPrefix(es[0].cfg.Device, "simhard") {
				way %= 2 // it has no messages: its requests are shorter than a ring
			}
			switch way {
			case 0:
				sig = p.Signal(keys[1].At(n), SignalSet, v)
			case 1:
				binary.NativeEndian.PutUint64(src[n:], v)
				sig = p.Put(keys[1].At(n), mems[0].Slice(n, 8))
			default:
				sig = p.Send(src[n : n+8])
				recv := make([]byte, 8)
				_, err := es[1].Peer(0).Recv(recv).Wait(ctx)
				require.NoError(t, err)
				require.NoError(t, whole(v), "behind the message %d", v)
			}
			require.NoError(t, WaitAll(ctx, big, sig))
			require.NoError(t, whole(v))
		}
		require.Positive(t, parts(p))
	})
}

// A rail that dies in the middle of transfers, and then the next one, costs nothing but
// bandwidth.
func TestRailsDie(t *testing.T) {
	for _, end := range []string{"here", "there"} {
		t.Run(end, func(t *testing.T) {
			es := rails(t, "sim", "sim,sim")
			connectRails(t, es)
			ctx := testutil.Context(t, testutil.Limit)
			const n = 1 << 18
			mems, keys := share(t, es, 2*n+64)
			p, src, dst := es[0].Peer(1), mems[0].Bytes(), mems[1].Bytes()
			for i := range 60 {
				testutil.Fill(src[:n], uint64(i), 0)
				put := p.Put(keys[1].At(0), mems[0].Slice(0, n))
				if i == 10 || i == 40 {
					victim := 1 + i/40
					require.True(t, p.Stats().Rails[victim].Up)
					require.True(t, es[map[string]int{"here": 0, "there": 1}[end]].breakRail(victim))
				}
				flag := p.Signal(keys[1].At(2*n), SignalSet, uint64(i))
				get := p.Get(mems[0].Slice(n, n), keys[1].At(0))
				require.NoError(t, WaitAll(ctx, put, flag, get))
				require.NoError(t, testutil.Verify(dst[:n], uint64(i), 0))
				require.NoError(t, testutil.Verify(src[n:2*n], uint64(i), 0))
			}
			for r, e := range es {
				testutil.Eventually(t, testutil.Limit, func() bool {
					s := e.Peer(1 - r).Stats().Rails
					return s[0].Up && s[1].Up && s[2].Up && s[1].Lost == 1 && s[2].Lost == 1
				}, "both rails are connected again")
			}
			seen := 0
			for ev := range WatchRails(ctx, es[0]) {
				require.True(t, ev.Up)
				require.NoError(t, ev.Err)
				require.EqualValues(t, 1, ev.Lost)
				if seen++; seen == 2 {
					break
				}
			}
			require.Nil(t, p.Stats().Err)
		})
	}
}

// Rails that are lost again and again, on either side and while they are being connected, come
// back each time; what is put and got meanwhile is right, and counters are exact.
func TestRailsComeBack(t *testing.T) {
	onRails(t, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		const n, turns = 1 << 16, 24
		mems, keys := share(t, es, 2*n+64)
		p, src, dst := es[0].Peer(1), mems[0].Bytes(), mems[1].Bytes()
		rng := rand.New(rand.NewPCG(5, 6))
		for i := range turns {
			victim := 1 + rng.IntN(len(p.Stats().Rails)-1)
			was, broke := p.Stats().Rails[victim], false
			for k := range 4 {
				m := n >> (6 * (i % 2)) // also operations that are not divided
				testutil.Fill(src[:m], uint64(i*4+k), 0)
				put := p.Put(keys[1].At(0), mems[0].Slice(0, m))
				if k == i%4 {
					broke = es[rng.IntN(2)].breakRail(victim)
				}
				add := p.FetchAdd(keys[1].At(2*n), 1)
				get := p.Get(mems[0].Slice(n, m), keys[1].At(0))
				require.NoError(t, WaitAll(ctx, put, add.Request, get))
				require.NoError(t, testutil.Verify(dst[:m], uint64(i*4+k), 0))
				require.NoError(t, testutil.Verify(src[n:n+m], uint64(i*4+k), 0))
			}
			if was.Up && broke && i%3 > 0 { // otherwise the next one may be lost before this one is back
				testutil.Eventually(t, testutil.Limit, func() bool {
					s := p.Stats().Rails[victim]
					return s.Up && s.Lost > was.Lost
				}, "the rail is back")
			}
		}
		connectRails(t, es)
		before := parts(p)
		testutil.Eventually(t, testutil.Limit, func() bool {
			require.NoError(t, p.Put(keys[1].At(0), mems[0].Slice(0, n)).Wait(ctx))
			return parts(p) > before
		}, "rails that came back carry parts")
		require.EqualValues(t, 4*turns, binary.NativeEndian.Uint64(dst[2*n:]))
		require.Nil(t, p.Stats().Err)
	})
}

// A request that the target refuses on a rail other than rail 0 has the errors of one that it
// refuses there, on both sides.
func TestRefusalOnARail(t *testing.T) {
	onRails(t, func(t *testing.T, es []*Engine) { alike(t, "access+flushed", 0, refusedOnARail(t, es)) })
}

// refusedOnARail has rank 1 refuse a put of rank 0 on a rail other than rail 0, and returns the errors that rank 1
// has from then on.
func refusedOnARail(t *testing.T, es []*Engine) map[string]error {
	ctx := testutil.Context(t, testutil.Limit)
	mems, keys := share(t, es, 1<<20)
	p := es[0].Peer(1)
	bad := *keys[1].contents
	for i := range p.rails {
		if p.rails[i].has {
			bad.RKeys[p.rails[i].num]++ // stale there, and valid on rail 0
		}
	}
	var err error
	for err == nil { // until one of them uses a rail
		err = p.Put(Key{contents: &bad}.At(0), mems[0].Slice(0, 1<<16)).Wait(ctx)
	}
	require.Equal(t, "access", sentinels(err), "%v", err)
	alike(t, "access+flushed", 1, everything(ctx, es[0], 1, mems[0], keys[1]))
	return everything(ctx, es[1], 0, mems[1], keys[0])
}

// Operations that are too short to be divided use another rail if rail 0 is slower, and
// vectors, atomics and signals between them see what the order says.
func TestShortOperationsUseTheBestRail(t *testing.T) {
	es := rails(t, "simhard", "sim") // rail 0 delays and refuses requests
	connectRails(t, es)
	ctx := testutil.Context(t, testutil.Limit)
	const n = 1 << 10
	mems, keys := share(t, es, 2*n+64)
	p, src := es[0].Peer(1), mems[0].Bytes()
	turn := 0
	testutil.Eventually(t, testutil.Limit, func() bool {
		before := parts(p)
		for range 64 {
			turn++
			testutil.Fill(src[:n], uint64(turn), 0)
			put := p.Put(keys[1].At(0), mems[0].Slice(0, n))
			add := p.FetchAdd(keys[1].At(2*n), 1)
			get := p.Get(mems[0].Slice(n, n), keys[1].At(0))
			old, err := add.Wait(ctx)
			require.NoError(t, err)
			require.EqualValues(t, turn-1, old)
			require.NoError(t, WaitAll(ctx, put, get))
			require.NoError(t, testutil.Verify(src[n:2*n], uint64(turn), 0))
		}
		return parts(p)-before > 64
	}, "most puts and gets use the other rail")
}

// Operations that take several requests of the link are divided as well, and survive the loss
// of a rail.
func TestLongOperationsAreDivided(t *testing.T) {
	es := rails(t, "simhard", "simhard,sim") // 64 KiB at once
	connectRails(t, es)
	ctx := testutil.Context(t, testutil.Limit)
	const most = 1 << 20
	mems, keys := share(t, es, 2*most+64)
	p, src, dst := es[0].Peer(1), mems[0].Bytes(), mems[1].Bytes()
	rng := rand.New(rand.NewPCG(7, 8))
	bytes := uint64(0)
	for i := range uint64(40) {
		n := most - rng.IntN(most/2)
		bytes += 2 * uint64(n)
		testutil.Fill(src[:n], i, 0)
		put := p.Put(keys[1].At(0), mems[0].Slice(0, n))
		if i%8 == 3 {
			es[rng.IntN(2)].breakRail(1 + rng.IntN(2))
		}
		flag := p.Signal(keys[1].At(2*most), SignalSet, i)
		get := p.Get(mems[0].Slice(most, n), keys[1].At(0))
		require.NoError(t, WaitAll(ctx, put, flag, get))
		require.NoError(t, testutil.Verify(dst[:n], i, 0))
		require.NoError(t, testutil.Verify(src[most:most+n], i, 0))
	}
	s := p.Stats()
	require.Equal(t, bytes, s.PutBytes+s.GetBytes-8, "besides that of connectRails")
	others := uint64(0)
	for _, r := range s.Rails[1:] {
		others += r.Bytes
	}
	require.Positive(t, others, "the first operations measure all rails; later ones use the fastest way")
	require.NoError(t, p.Put(keys[1].At(0), mems[0].Slice(0, most)).Wait(ctx))
	require.ErrorIs(t, p.Put(keys[1].At(most), mems[0].Slice(0, 2*most)).Wait(ctx), ErrBounds)
}

// Memory that is not registered is divided as well: it is pinned on all rails until the request
// is complete.
func TestRailsCarryBytes(t *testing.T) {
	onRails(t, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		const most = 1 << 18
		_, keys := share(t, es, most)
		mem := make([]byte, 2*most)
		p, rng := es[0].Peer(1), rand.New(rand.NewPCG(9, 10))
		for i := range uint64(40) {
			n := most >> (rng.IntN(3) * 5)
			testutil.Fill(mem[:n], i, 0)
			clear(mem[most:][:n])
			put := p.PutBytes(keys[1].At(0), mem[:n])
			if i%8 == 5 {
				es[rng.IntN(2)].breakRail(1)
			}
			get := p.GetBytes(mem[most:][:n], keys[1].At(0))
			require.NoError(t, WaitAll(ctx, put, get))
			require.NoError(t, testutil.Verify(mem[most:][:n], i, 0))
		}
		require.Positive(t, parts(p))
		require.NoError(t, es[0].Invalidate(mem), "nothing is in use")
	})
}

// breakRail ends a rail, as its link would, which WatchRails reports. It returns false if the
// rail is not connected.
func (e *Engine) breakRail(number int) (did bool) {
	p := e.peers[1-e.Rank()]
	e.prog.Do(func() {
		if ep := p.rails[number].ep; ep != nil {
			ep.Close()
			(*oneSidedHost)(p).RailLost(number, fabric.ErrDown)
			ev := e.railWatches.state(railName{p.rank, number})
			did = !ev.Up && errors.Is(ev.Err, fabric.ErrDown)
		}
	})
	return did
}

// A rail that one side lacks is not used, and the job goes on.
func TestRailsThatAreMissing(t *testing.T) {
	es := openWith(t, 2, "tcp", func(c *Config) {
		if c.Job.Rank == 0 {
			c.Rails = "127.0.0.2,127.0.0.3"
		} else {
			c.Rails = "no-such-interface,127.0.0.3"
		}
	})
	ctx := testutil.Context(t, testutil.Limit)
	const n = 1 << 18
	mems, keys := share(t, es, n)
	p := es[0].Peer(1)
	testutil.Fill(mems[0].Bytes(), 9, 0)
	require.NoError(t, p.Put(keys[1].At(0), mems[0].Slice(0, n)).Wait(ctx))
	testutil.Eventually(t, testutil.Limit, func() bool { return p.Stats().Rails[2].Up }, "the rail that both have")
	require.False(t, p.Stats().Rails[1].Up)
	require.NoError(t, p.Put(keys[1].At(0), mems[0].Slice(0, n)).Wait(ctx))
	require.NoError(t, testutil.Verify(mems[1].Bytes()[:n], 9, 0))
}

// Values of a peer about rails that do not exist, of other connections, and repeated ones
// change nothing.
func TestHostileRails(t *testing.T) {
	es := rails(t, "sim", "sim")
	connectRails(t, es)
	ctx := testutil.Context(t, testutil.Limit)
	const n = 1 << 18
	mems, keys := share(t, es, n)
	number := []byte{0, 0, 0, 0}
	say := func(conn byte, v bringup.RailValue) []byte { return v.Append([]byte{conn, 0, 0, 0}) }
	open := func(rail int) bringup.RailValue {
		return bringup.RailValue{Number: rail, Address: []byte{1, 2, 3}, Word: fabric.RemoteKey{Addr: 8, Len: 8}}
	}
	closed := bringup.RailValue{Number: 1}
	for _, val := range [][]byte{
		nil, {1}, number, append(number, 0), append(number, 4), append(number, 255, 1, 2), // no such rail
		say(0, bringup.RailValue{Number: 4}), say(0, bringup.RailValue{}),
		append(number, 1), append(number, 1, 1, 2, 3), // of another version
		say(0, closed)[:12], say(0, open(1))[:25], append(say(0, closed), 0), // truncated, too long
		say(0, bringup.RailValue{Number: 2}), say(0, open(2)), say(0, open(3)), say(0, open(3)), // a rail that this side lacks
		say(0, open(1)), // a second address
		say(0, bringup.RailValue{Number: 1, Ready: true}), say(0, bringup.RailValue{Number: 2, Ready: true}), // again, and of a rail that this side lacks
		say(9, closed), say(9, open(1)), // of another connection
	} {
		require.NoError(t, es[1].job.Send(ctx, 0, bringup.KeyRail, slices.Clone(val)))
	}
	together(t, es, func(ctx context.Context, e *Engine) error { return e.Barrier(ctx) }) // behind these values
	p := es[0].Peer(1)
	for i := range 20 {
		testutil.Fill(mems[0].Bytes(), uint64(i), 0)
		require.NoError(t, p.Put(keys[1].At(0), mems[0].Slice(0, n)).Wait(ctx))
		require.NoError(t, testutil.Verify(mems[1].Bytes()[:n], uint64(i), 0))
	}
	require.True(t, p.Stats().Rails[1].Up)
	require.Positive(t, parts(p))

	// A peer that closes its rail twice, and one that does so although this side still uses it.
	for range 2 {
		require.NoError(t, es[1].job.Send(ctx, 0, bringup.KeyRail, say(0, closed)))
	}
	testutil.Eventually(t, testutil.Limit, func() bool { return !p.Stats().Rails[1].Up }, "the rail is closed")
	require.NoError(t, p.Put(keys[1].At(0), mems[0].Slice(0, n)).Wait(ctx))
	require.Nil(t, p.Stats().Err)
}

// endedEndpoint is an endpoint that has failed.
type endedEndpoint struct{ fabric.Endpoint }

func (endedEndpoint) Err() error   { return fabric.ErrDown }
func (endedEndpoint) Close() error { return nil }

// A rail whose endpoint has ended before the engine knew it, so that its event found no rail, is
// not taken for a connected one.
func TestRailsThatEndBeforeTheyAreUp(t *testing.T) {
	es := rails(t, "sim", "sim")
	connectRails(t, es)
	p := es[0].Peer(1)
	var err error
	var taken fabric.Endpoint
	es[0].prog.Do(func() {
		r := &p.rails[1]
		ep := r.ep
		r.ep = nil
		err = (*connectionEnd)(p).RailUp(1, endedEndpoint{}, fabric.RemoteKey{})
		taken, r.ep = r.ep, ep
	})
	require.ErrorIs(t, err, fabric.ErrDown)
	require.Nil(t, taken)
}

// The long pieces of vectors and the long runs of shapes use the rails as well, also while rails are
// lost: what they put and get is right, they count once, and what is posted behind them comes after
// all of them.
func TestRailsCarryPieces(t *testing.T) {
	onRails(t, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		const most, run, stride = 40, 64 << 10, 68 << 10
		mems, keys := share(t, es, 2*most*stride+64)
		p, src, dst := es[0].Peer(1), mems[0].Bytes(), mems[1].Bytes()
		rng := rand.New(rand.NewPCG(13, 14))
		was, before := p.Stats(), parts(p)
		const turns, back, flag = 24, most * stride, 2 * most * stride
		bytes := 0
		for i := range uint64(turns) {
			n := 1 + rng.IntN(most)
			shape := Shape2D(n, run, run, stride)
			testutil.Fill(src[:n*run], i, 0)
			var put, get Request
			if i%2 == 0 {
				put = p.PutStrided(keys[1].At(0), mems[0].Slice(0, n*run), shape)
			} else {
				var there []Span
				var here []Buffer
				for _, k := range rng.Perm(n) {
					there = append(there, keys[1].Slice(k*stride, run))
					here = append(here, mems[0].Slice(k*run, run))
				}
				put = p.PutV(there, here)
			}
			if i%8 == 3 {
				es[rng.IntN(2)].breakRail(1)
			}
			sig := p.Signal(keys[1].At(flag), SignalSet, i+1)
			for testutil.Load64(dst[flag:]) != i+1 {
				require.NoError(t, ctx.Err())
				runtime.Gosched()
			}
			for k := range n {
				require.NoError(t, testutil.Verify(dst[k*stride:][:run], i, uint64(k*run)), "behind it is the signal")
			}
			clear(src[back:][:n*run])
			get = p.GetStrided(mems[0].Slice(back, n*run), keys[1].At(0), shape)
			require.NoError(t, WaitAll(ctx, put, sig, get))
			require.NoError(t, testutil.Verify(src[back:][:n*run], i, 0))
			bytes += n * run
		}
		s := p.Stats()
		require.EqualValues(t, turns, s.Puts-was.Puts)
		require.EqualValues(t, turns, s.Gets-was.Gets)
		require.EqualValues(t, bytes, s.GetBytes-was.GetBytes)
		require.Greater(t, parts(p), before)
		require.Nil(t, s.Err)
		require.ErrorIs(t, p.PutV([]Span{keys[1].Slice(0, run)}, []Buffer{mems[0].Slice(0, run+1)}).Wait(ctx), ErrLength)
		require.NoError(t, p.PutV(nil, nil).Wait(ctx))
	})
}

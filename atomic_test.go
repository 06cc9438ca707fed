package rma

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/testutil"
)

// Each atomic returns the previous value and stores the right one, in both halves of a
// word, and changes nothing else.
func TestAtomics(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 4096)
		for to := range es {
			p, mem := es[0].Peer(to), mems[to].Bytes()
			for i, c := range []struct {
				do         func(Remote) AtomicRequest
				old, after uint64
			}{
				{func(r Remote) AtomicRequest { return p.FetchAdd(r, ^uint64(0)) }, 7, 6},
				{func(r Remote) AtomicRequest { return p.CompareSwap(r, 7, 1) }, 7, 1},
				{func(r Remote) AtomicRequest { return p.CompareSwap(r, 8, 1) }, 7, 7},
				{func(r Remote) AtomicRequest { return p.Swap(r, 99) }, 1 << 60, 99},
				{func(r Remote) AtomicRequest { return p.Swap(r, 0) }, 0, 0},
				{func(r Remote) AtomicRequest { return p.FetchAnd(r, 0xf0) }, 0xff1, 0xf0},
				{func(r Remote) AtomicRequest { return p.FetchOr(r, 0xf0) }, 0x101, 0x1f1},
				{func(r Remote) AtomicRequest { return p.FetchXor(r, 0xff) }, 0x10f, 0x1f0},
			} {
				at := 64 + 8*i
				binary.NativeEndian.PutUint64(mem[at:], c.old)
				v, err := c.do(keys[to].At(at)).Wait(ctx)
				require.NoError(t, err)
				require.Equal(t, c.old, v, "case %d", i)
				require.Equal(t, c.after, binary.NativeEndian.Uint64(mem[at:]), "case %d", i)
			}
			for i, c := range []struct {
				do         func(Remote) AtomicRequest32
				old, after uint32
			}{
				{func(r Remote) AtomicRequest32 { return p.FetchAdd32(r, 3) }, ^uint32(0), 2},
				{func(r Remote) AtomicRequest32 { return p.CompareSwap32(r, 7, 1) }, 7, 1},
				{func(r Remote) AtomicRequest32 { return p.CompareSwap32(r, 8, 1) }, 7, 7},
				{func(r Remote) AtomicRequest32 { return p.Swap32(r, 99) }, 1 << 30, 99},
				{func(r Remote) AtomicRequest32 { return p.FetchAnd32(r, 0xf0) }, 0xff1, 0xf0},
				{func(r Remote) AtomicRequest32 { return p.FetchOr32(r, 0xf0) }, 0x101, 0x1f1},
				{func(r Remote) AtomicRequest32 { return p.FetchXor32(r, 0xff) }, 0x10f, 0x1f0},
			} {
				for half := range 2 {
					at := 256 + 16*i + 4*half
					word := mem[256+16*i:][:8]
					binary.NativeEndian.PutUint64(word, 0xa5a5a5a5_5a5a5a5a)
					want := [8]byte(word)
					binary.NativeEndian.PutUint32(mem[at:], c.old)
					binary.NativeEndian.PutUint32(want[4*half:], c.after)
					v, err := c.do(keys[to].At(at)).Wait(ctx)
					require.NoError(t, err)
					require.Equal(t, c.old, v, "case %d, half %d", i, half)
					require.Equal(t, want[:], word, "case %d, half %d", i, half)
				}
			}
		}
	})
}

// If the target's memory is mapped, every atomic is complete when the call returns, and the
// target executes no accumulates.
func TestAtomicsOnMappedMemory(t *testing.T) {
	es := open(t, 2, "shm")
	ctx := testutil.Context(t, testutil.Limit)
	mems, keys := share(t, es, 4096)
	p, k := es[0].Peer(1), &keys[1]
	for _, do := range []func() Request{
		func() Request { return p.Swap(k.At(0), 99).Request },
		func() Request { return p.FetchAnd(k.At(0), 0xf0f).Request },
		func() Request { return p.FetchOr(k.At(0), 0xf0f).Request },
		func() Request { return p.FetchXor(k.At(0), 3).Request },
		func() Request { return p.Swap32(k.At(8), 5).Request },
		func() Request { return p.CompareSwap32(k.At(12), 5, 6).Request },
		func() Request { return p.FetchAdd32(k.At(12), 5).Request },
	} {
		r := soon(t, do)
		require.NoError(t, r.Wait(ctx))
	}
	var one = []float64{1}
	served, retries := es[1].Stats().Served, es[0].Stats().AtomicRetries
	require.Zero(t, testutil.AllocsPerRun(100, func() {
		v, err := p.FetchXor32(k.At(68), 1).Wait(ctx)
		w, err2 := p.Swap(k.At(72), 7).Wait(ctx)
		if _, err := Fetch(p, k.At(88), Min, -1.0).Wait(ctx); err != nil {
			panic(err)
		}
		if err != nil || err2 != nil || v > 1 || w%7 != 0 || Accumulate(p, k.At(80), Sum, one).Wait(ctx) != nil {
			panic("wrong")
		}
	}))
	require.Equal(t, served, es[1].Stats().Served)
	f, err := View[float64](mems[1].Slice(80, 8))
	require.NoError(t, err)
	require.Equal(t, []float64{101}, f)
	require.Equal(t, retries, es[0].Stats().AtomicRetries)
}

func TestAtomicRefusals(t *testing.T) {
	es := simulate(t, 2, "sim")
	ctx := testutil.Context(t, testutil.Limit)
	_, keys := share(t, es, 64)
	odd, err := es[1].Register(make([]byte, 64)[3:])
	require.NoError(t, err)
	p, k, o := es[0].Peer(1), &keys[1], odd.Key()
	inOdd := int(8 - o.value().Addr%8) // the first whole word
	for i, c := range []struct {
		r    Request
		want error
	}{
		{p.Swap(k.At(4), 1).Request, ErrAlign},
		{p.Swap(k.At(64), 1).Request, ErrBounds},
		{p.FetchXor(keys[0].At(0), 1).Request, ErrWrongPeer},
		{p.FetchAdd32(k.At(2), 1).Request, ErrAlign},
		{p.FetchAdd32(k.At(64), 1).Request, ErrBounds},
		{p.Swap32(o.At(inOdd-4), 1).Request, ErrBounds}, // half the word is before the region
		{p.Swap32(o.At(inOdd), 1).Request, nil},
		{p.Swap32(o.At(inOdd+4), 1).Request, nil},
	} {
		require.ErrorIs(t, c.r.Wait(ctx), c.want, "case %d", i)
	}
}

// All kinds at once on few words, from goroutines of all ranks: nothing is lost, and every
// value swapped in is returned once.
func TestAtomicsAreAtomicWithEachOther(t *testing.T) {
	onAll(t, 3, func(t *testing.T, es []*Engine) {
		mems, keys := share(t, es, 4096)
		const workers, rounds = 3, 40
		// Word 0: two counters of 32 bits and nothing between them. Word 1: swapped.
		// Word 2: a bit for each worker, toggled; the upper half counts. Word 3:
		// counted by compare-and-swap of 32 bits and by FetchAdd of 64.
		var seen [3][workers][]uint64
		together(t, es, func(ctx context.Context, e *Engine) error {
			var g errgroup.Group
			for w := range workers {
				g.Go(func() error {
					p, k := e.Peer(0), &keys[0]
					me := e.Rank()*workers + w
					for i := range rounds {
						bit := uint64(1) << me
						var reqs []Request
						reqs = append(reqs, p.FetchAdd32(k.At(0), 1<<31+1).Request, p.FetchAdd32(k.At(4), 1<<31+1).Request)
						reqs = append(reqs, p.FetchAdd32(k.At(20), 1).Request)
						old, err := p.FetchXor32(k.At(16), uint32(bit)).Wait(ctx)
						if err != nil {
							return err
						}
						if uint64(old)&bit != uint64(i%2)<<me {
							return fmt.Errorf("worker %d, round %d: bit of %x", me, i, old)
						}
						v, err := p.Swap(k.At(8), uint64(1+me*rounds+i)).Wait(ctx)
						if err != nil {
							return err
						}
						seen[e.Rank()][w] = append(seen[e.Rank()][w], v)
						for guess := uint32(0); ; {
							v, err := p.CompareSwap32(k.At(24), guess, guess+1).Wait(ctx)
							if err != nil {
								return err
							}
							if v == guess {
								break
							}
							guess = v
						}
						if err := WaitAll(ctx, reqs...); err != nil {
							return err
						}
					}
					return nil
				})
			}
			return g.Wait()
		})
		const n = 3 * workers * rounds
		mem := mems[0].Bytes()
		add := uint64(1<<31 + 1)
		require.Equal(t, uint32(add*n), binary.NativeEndian.Uint32(mem))
		require.Equal(t, uint32(add*n), binary.NativeEndian.Uint32(mem[4:]))
		require.EqualValues(t, n, binary.NativeEndian.Uint32(mem[20:]))
		require.EqualValues(t, n, binary.NativeEndian.Uint32(mem[24:]))
		require.Zero(t, binary.NativeEndian.Uint32(mem[28:]))
		require.Zero(t, binary.NativeEndian.Uint32(mem[16:]), "every bit was toggled an even number of times")
		found := map[uint64]int{binary.NativeEndian.Uint64(mem[8:]): 1}
		for _, r := range seen {
			for _, vs := range r {
				for _, v := range vs {
					found[v]++
				}
			}
		}
		require.Len(t, found, n+1)
		for v := range uint64(n + 1) {
			require.Equal(t, 1, found[v], "value %d", v)
		}
	})
}

// A fence delays later operations until emulated atomics have taken place; emulated atomics
// on one word take place in the order of the calls.
func TestFenceWaitsForLoops(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 64)
		p, k := es[0].Peer(1), &keys[1]
		for i := range uint64(100) {
			binary.NativeEndian.PutUint64(mems[1].Bytes(), 3*i) // differs from the value last seen
			a := p.Swap(k.At(0), i)
			b := p.FetchXor(k.At(0), 1<<40)
			p.Fence()
			get := p.Get(mems[0].Slice(0, 8), k.At(0))
			p.Fence() // else the get may see the next one
			c := p.Swap(k.At(0), 77)
			require.NoError(t, get.Wait(ctx))
			require.Equal(t, i^1<<40, binary.NativeEndian.Uint64(mems[0].Bytes()))
			for _, x := range []struct {
				r    AtomicRequest
				want uint64
			}{{a, 3 * i}, {b, i}, {c, i ^ 1<<40}} {
				v, err := x.r.Wait(ctx)
				require.NoError(t, err)
				require.Equal(t, x.want, v)
			}
		}
	})
}

// Atomics in flight to a peer that leaves end with an error, and so do those queued behind
// others.
func TestAtomicsToAPeerThatLeaves(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		_, keys := share(t, es, 64)
		p := es[0].Peer(1)
		done := make(chan error, 8)
		for w := range 8 {
			go func() {
				for i := uint64(0); ; i++ {
					r := p.FetchXor(keys[1].At(8*(w%2)), i)
					q := p.Swap(keys[1].At(0), i)
					if err := WaitAll(ctx, r.Request, q.Request); err != nil {
						done <- err
						return
					}
				}
			}()
		}
		testutil.Eventually(t, testutil.Limit, func() bool { return es[0].Stats().Atomics > 50 }, "atomics")
		require.NoError(t, es[1].Close())
		for range 8 {
			err := <-done
			require.True(t, errors.Is(err, ErrPeerGone) || errors.Is(err, ErrFlushed) || errors.Is(err, ErrRemoteAccess), "%v", err)
		}
		s := es[0].Stats()
		require.Zero(t, s.InFlight+s.Queued)
		require.False(t, busy(p))
	})
}

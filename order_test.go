package rma

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// orderModel is plain memory, on which operations take place in the order of the calls.
type orderModel struct {
	rng   *rand.Rand
	words []uint64
}

// half is the 4-byte word at off, as a shift into its word.
func (m *orderModel) half(off int) (w *uint64, shift int) {
	w = &m.words[off/8]
	if shift = off % 8 * 8; binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		shift = 32 - shift // big-endian
	}
	return w, shift
}

// step posts an operation. It returns a function that waits for its result, and the
// expected result.
func (m *orderModel) step(p *Peer, at func(off int) Remote) (wait func(context.Context) (uint64, error), want uint64) {
	i, v := m.rng.IntN(len(m.words)), m.rng.Uint64N(1<<20)
	w := &m.words[i]
	want = *w
	off := 8*i + 4*m.rng.IntN(2)
	full := func(r AtomicRequest) (func(context.Context) (uint64, error), uint64) { return r.Wait, want }
	plain := func(r Request) (func(context.Context) (uint64, error), uint64) {
		return func(ctx context.Context) (uint64, error) { return 0, r.Wait(ctx) }, 0
	}
	short := func(r AtomicRequest32, f func(uint32) uint32) (func(context.Context) (uint64, error), uint64) {
		w, shift := m.half(off)
		old := uint32(*w >> shift)
		*w = *w&^((1<<32-1)<<shift) | uint64(f(old))<<shift
		return func(ctx context.Context) (uint64, error) { x, err := r.Wait(ctx); return uint64(x), err }, uint64(old)
	}
	switch m.rng.IntN(14) {
	case 0:
		*w = v
		return full(p.Swap(at(8*i), v))
	case 1:
		*w &= v
		return full(p.FetchAnd(at(8*i), v))
	case 2:
		*w |= v
		return full(p.FetchOr(at(8*i), v))
	case 3:
		*w ^= v
		return full(p.FetchXor(at(8*i), v))
	case 4, 5:
		*w += v
		return full(p.FetchAdd(at(8*i), v))
	case 6:
		compare := *w
		if v%4 != 0 {
			*w = v
		} else {
			compare++
		}
		return full(p.CompareSwap(at(8*i), compare, v))
	case 7:
		return short(p.FetchAdd32(at(off), uint32(v)), func(x uint32) uint32 { return x + uint32(v) })
	case 8:
		return short(p.Swap32(at(off), uint32(v)), func(uint32) uint32 { return uint32(v) })
	case 9:
		return short(p.FetchXor32(at(off), uint32(v)), func(x uint32) uint32 { return x ^ uint32(v) })
	case 10: // over several words
		n := 1 + m.rng.IntN(len(m.words)-i)
		src := make([]uint64, n)
		for k := range src {
			src[k] = v + uint64(k)
			m.words[i+k] += src[k]
		}
		return plain(Accumulate(p, at(8*i), Sum, src))
	case 11:
		*w = v
		return plain(Accumulate(p, at(8*i), Replace, []uint64{v}))
	case 12:
		if v%2 == 0 {
			return plain(Accumulate(p, at(8*i), Sum, []uint64{}))
		}
		return plain(p.PutBytes(at(8*i), nil))
	}
	p.Fence()
	return nil, 0
}

// Atomics of all kinds and accumulates of one rank on the same word take place in the order
// of their calls, however many are in flight, with fences and empty operations in between.
func TestOneRanksAtomicsAndAccumulatesKeepTheirOrder(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		const words, window = 4, 40
		steps := testutil.Times(1500)
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 8*words)
		for seed := range uint64(4) {
			to := int(seed % 2) // itself, and the other
			m := &orderModel{rng: rand.New(rand.NewPCG(seed, 7)), words: make([]uint64, words)}
			clear(mems[to].Bytes())
			type result struct {
				wait func(context.Context) (uint64, error)
				want uint64
			}
			var inFlight []result
			for i := range steps {
				wait, want := m.step(es[0].Peer(to), func(off int) Remote { return keys[to].At(off) })
				if wait != nil {
					inFlight = append(inFlight, result{wait, want})
				}
				for len(inFlight) > 0 && (i == steps-1 || len(inFlight) > window) {
					got, err := inFlight[0].wait(ctx)
					require.NoError(t, err)
					require.Equal(t, inFlight[0].want, got, "seed %d, step %d", seed, i)
					inFlight = inFlight[1:]
				}
			}
			for i, w := range m.words {
				require.Equal(t, w, testutil.Load64(mems[to].Bytes()[8*i:]), "seed %d, word %d", seed, i)
			}
		}
	})
}

// Emulated atomics on a word that no other rank changes take one compare-and-swap each,
// also behind a fence that waits.
func TestLoopsOfOneRankDoNotRace(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		_, keys := share(t, es, 64)
		p, at := es[0].Peer(1), keys[1].At(8)
		first := p.Swap(at, 1)
		p.Fence()
		const n = 300
		var reqs [n]AtomicRequest
		for i := range reqs {
			reqs[i] = p.Swap(at, uint64(i)+2)
		}
		_, err := first.Wait(ctx)
		require.NoError(t, err)
		for i := range reqs {
			v, err := reqs[i].Wait(ctx)
			require.NoError(t, err)
			require.EqualValues(t, i+1, v)
		}
		require.LessOrEqual(t, p.Stats().AtomicRetries, uint64(2))
	})
}

// Any number of atomics in line for a word end with their peer, in a stack of any size.
func TestALongLineEndsWithItsPeer(t *testing.T) {
	es := simulate(t, 2, "sim")
	ctx := testutil.Context(t, testutil.Limit)
	_, keys := share(t, es, 64)
	p := es[0].Peer(1)
	_, err := p.Swap(keys[1].At(0), 1).Wait(ctx)
	require.NoError(t, err)
	defer debug.SetMaxStack(debug.SetMaxStack(4 << 20))
	const n = 100_000
	ended := 0
	posted := 0
	es[0].prog.Do(func() {
		for range n {
			p.FetchXor(keys[1].At(0), 1).Then(func(error) { ended++ })
		}
		es[0].proto.Step()
		posted = p.one.InFlight()
	})
	require.Positive(t, posted)
	require.NoError(t, es[1].Close())
	testutil.Eventually(t, testutil.Limit, func() (all bool) {
		es[0].prog.Do(func() { all = ended == n })
		return all
	}, "the end of all")
}

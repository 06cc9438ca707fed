package scatter

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
)

// pair is one byte's way: where from, where to.
type pair struct {
	remote, local uint64
	rkey, lkey    uint32
}

// reference joins source and destination byte by byte.
func reference(src []Region, skip uint64, dst []fabric.SGE) []pair {
	var from, to, out []pair
	for _, r := range src {
		for i := range uint64(r.Len) {
			from = append(from, pair{remote: r.Addr + i, rkey: r.RKey})
		}
	}
	for _, d := range dst {
		for i := range uint64(d.Len) {
			to = append(to, pair{local: d.Addr + i, lkey: d.LKey})
		}
	}
	from = from[min(skip, uint64(len(from))):]
	for i := range min(len(from), len(to)) {
		out = append(out, pair{from[i].remote, to[i].local, from[i].rkey, to[i].lkey})
	}
	return out
}

// expand lists what requests do byte by byte.
func expand(t require.TestingT, wrs []fabric.WR, lim Limits, out []pair) []pair {
	for i := range wrs {
		w := &wrs[i]
		require.Positive(t, w.Len())
		require.LessOrEqual(t, len(w.Local), lim.MaxSGE)
		require.LessOrEqual(t, w.Len(), lim.MaxMessage)
		at := w.RemoteAddr
		for _, s := range w.Local {
			require.Positive(t, s.Len)
			for k := range uint64(s.Len) {
				out = append(out, pair{at, s.Addr + k, w.RKey, s.LKey})
				at++
			}
		}
	}
	return out
}

func randomPieces(rng *rand.Rand, total uint64) []fabric.SGE {
	var out []fabric.SGE
	addr := uint64(1 << 50)
	for total > 0 || rng.IntN(3) == 0 {
		n := rng.Uint64N(min(total, 250) + 1)
		out = append(out, fabric.SGE{Addr: addr, Len: uint32(n), LKey: uint32(rng.IntN(2))})
		total -= n
		addr += n
		if rng.IntN(2) == 0 {
			addr += rng.Uint64N(99)
		}
	}
	return out
}

// check runs a plan to its end in random portions and compares.
func checkPlan(t require.TestingT, rng *rand.Rand, src []Region, skip uint64, dst []fabric.SGE, lim Limits) {
	var p Plan
	p.Reset(dst, lim)
	cut := rng.IntN(len(src) + 1)
	feeds := [][]Region{src[:cut], src[cut:]}
	var before uint64
	for _, r := range src[:cut] {
		before += uint64(r.Len)
	}
	var got []pair
	wrs, sges := make([]fabric.WR, 9), make([]fabric.SGE, 40)
	for i, f := range feeds {
		if i == 0 {
			p.Feed(f, skip)
		} else {
			p.Feed(f, skip-min(skip, before))
		}
		for !p.Done() {
			busy := rng.IntN(lim.MaxReads)
			k, m := 1+rng.IntN(len(wrs)), 1+rng.IntN(len(sges))
			for i := range wrs {
				wrs[i] = fabric.WR{ID: 99, Imm: 1, Flags: 0xff}
			}
			n := p.Next(fabric.OpRead, wrs[:k], sges[:m], busy)
			require.Positive(t, n)
			require.LessOrEqual(t, busy+n, lim.MaxReads)
			require.Zero(t, p.Next(fabric.OpRead, wrs[n:], sges, lim.MaxReads), "in flight: as many as may be")
			pieces := 0
			for _, w := range wrs[:n] {
				require.Equal(t, fabric.WR{Op: fabric.OpRead, Local: w.Local, RemoteAddr: w.RemoteAddr, RKey: w.RKey}, w)
				pieces += len(w.Local)
			}
			require.LessOrEqual(t, pieces, m)
			got = expand(t, wrs[:n], lim, got)
		}
	}
	require.Zero(t, p.Next(fabric.OpRead, wrs, sges, 0))
	require.Equal(t, reference(src, skip, dst), got)
}

func randomLimits(rng *rand.Rand) Limits {
	return Limits{MaxSGE: 1 + rng.IntN(6), MaxMessage: 1 + rng.Uint64N(400), MaxReads: 1 + rng.IntN(8)}
}

func TestPlanAgainstReference(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 3))
		d := random(rng, 1+rng.IntN(12))
		skip := uint64(0)
		if all := total(d); rng.IntN(2) == 0 && all > 0 {
			skip = rng.Uint64N(all)
		}
		left := total(d) - skip
		if rng.IntN(4) == 0 {
			left /= 2 // destination shorter: the plan ends with it
		}
		checkPlan(t, rng, d.Regions, skip, randomPieces(rng, left), randomLimits(rng))
	}
}

func FuzzPlan(f *testing.F) {
	for i := range uint64(8) {
		f.Add(i)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 4))
		d := random(rng, 1+rng.IntN(20))
		checkPlan(t, rng, d.Regions, rng.Uint64N(total(d)+1), randomPieces(rng, rng.Uint64N(3000)), randomLimits(rng))
	})
}

// Neighbours that touch become one: a batch that is contiguous on both sides is
// one request of one piece, however it was cut.
func TestPlanMerges(t *testing.T) {
	t.Parallel()
	src := []Region{{1000, 10, 7}, {1010, 20, 7}, {1030, 5, 7}}
	dst := []fabric.SGE{{Addr: 5000, Len: 3, LKey: 1}, {Addr: 5003, Len: 30, LKey: 1}, {Addr: 5033, Len: 2, LKey: 1}}
	wrs, sges := make([]fabric.WR, 8), make([]fabric.SGE, 8)
	next := func(src []Region, dst []fabric.SGE) int {
		var p Plan
		p.Reset(dst, Limits{})
		p.Feed(src, 0)
		return p.Next(fabric.OpRead, wrs, sges, 1000)
	}
	require.Equal(t, 1, next(src, dst))
	require.Equal(t, fabric.WR{Op: fabric.OpRead, RemoteAddr: 1000, RKey: 7, Local: []fabric.SGE{{Addr: 5000, Len: 35, LKey: 1}}}, wrs[0])

	src[1].RKey = 8 // another region, though it touches
	require.Equal(t, 3, next(src, dst))
	src[1].RKey = 7
	dst[1].LKey = 2
	require.Equal(t, 1, next(src, dst))
	require.Len(t, wrs[0].Local, 3, "one read, scattered")

	// A piece has 32 bits of length, a request may be longer.
	src = []Region{{1 << 40, math.MaxUint32, 7}, {1<<40 + math.MaxUint32, 10, 7}}
	dst = []fabric.SGE{{Addr: 1 << 50, Len: math.MaxUint32, LKey: 1}, {Addr: 1<<50 + math.MaxUint32, Len: 10, LKey: 1}}
	require.Equal(t, 1, next(src, dst))
	require.Equal(t, uint64(math.MaxUint32)+10, wrs[0].Len())
	require.Len(t, wrs[0].Local, 2)
}

func TestLimitsOf(t *testing.T) {
	t.Parallel()
	caps := fabric.Caps{MaxSGE: 4, MaxMessage: 1000, MaxReads: 3}
	require.Equal(t, Limits{4, 1000, 3}, LimitsOf(caps, 0))
	require.Equal(t, Limits{4, 500, 3}, LimitsOf(caps, 500))
	require.Equal(t, Limits{4, 1000, 3}, LimitsOf(caps, 5000))
}

func TestPlanDoesNotAllocate(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	d := random(rng, 30)
	dst := randomPieces(rng, total(d))
	wrs, sges := make([]fabric.WR, 8), make([]fabric.SGE, 16)
	var p Plan
	require.Zero(t, testing.AllocsPerRun(20, func() {
		p.Reset(dst, Limits{MaxSGE: 4, MaxMessage: 300, MaxReads: 4})
		p.Feed(d.Regions, 0)
		for p.Next(fabric.OpRead, wrs, sges, 0) > 0 {
		}
	}))
}

// 64 messages of 16 KiB out of 8 regions, into 64 buffers.
func BenchmarkPlan(b *testing.B) {
	var src []Region
	for i := range uint64(8) {
		src = append(src, Region{Addr: 1 << 30 * (i + 1), Len: 8 * 16384, RKey: 1})
	}
	var dst []fabric.SGE
	for i := range uint64(64) {
		dst = append(dst, fabric.SGE{Addr: 1 << 20 * (i + 1), Len: 16384, LKey: 2})
	}
	wrs, sges := make([]fabric.WR, 16), make([]fabric.SGE, 64)
	var p Plan
	b.ReportAllocs()
	for b.Loop() {
		p.Reset(dst, Limits{MaxSGE: 16, MaxMessage: 1 << 30, MaxReads: 16})
		p.Feed(src, 0)
		for p.Next(fabric.OpRead, wrs, sges, 0) > 0 {
		}
	}
}

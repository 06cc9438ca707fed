package rma

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// accumulates makes random accumulates of all forms to the part of a rank that mem is, and
// compares previous elements and memory with those of a plain slice.
func accumulates[T Element](t *testing.T, p *Peer, k Key, mem []T, seed uint64, ops map[Reduction]func(a, b T) T) {
	ctx := testutil.Context(t, testutil.Limit)
	rng := rand.New(rand.NewPCG(seed, 7))
	size := sizeOf[T]()
	value := func() T { return T(rng.IntN(100)) }
	model := make([]T, len(mem))
	for i := range model {
		model[i] = value()
	}
	copy(mem, model)
	var names []Reduction
	for op := range ops {
		names = append(names, op)
	}
	slices.Sort(names)
	var reqs []Request
	var checks []func()
	for step := range 120 {
		op := names[rng.IntN(len(names))]
		apply := func(at int, v T) T {
			old := model[at]
			model[at] = ops[op](old, v)
			return old
		}
		n := 1 + rng.IntN(1+rng.IntN(len(mem)-1))
		src := make([]T, n)
		for i := range src {
			src[i] = value()
		}
		switch kind := rng.IntN(5); {
		case op == NoOp || kind == 0:
			at := rng.IntN(len(mem) - n + 1)
			old, want := make([]T, n), make([]T, n)
			for i := range want {
				want[i] = apply(at+i, src[i])
			}
			if op == NoOp && kind < 3 {
				src = nil
			}
			reqs = append(reqs, GetAccumulate(p, old, k.At(at*size), op, src))
			checks = append(checks, func() { require.Equal(t, want, old, "step %d: %v of %d elements at %d", step, op, n, at) })
		case kind == 1: // pieces that may overlap, in no order
			var dst []Span
			for left := src; len(left) > 0; {
				m := 1 + rng.IntN(len(left))
				at := rng.IntN(len(mem) - m + 1)
				for i := range m {
					apply(at+i, left[i])
				}
				dst = append(dst, k.Slice(at*size, m*size))
				left = left[m:]
			}
			reqs = append(reqs, AccumulateV(p, dst, op, src))
		case kind == 2:
			run, rows, planes := 1+rng.IntN(5), 1+rng.IntN(20), 1+rng.IntN(4)
			row, plane := rng.IntN(12), rng.IntN(60) // may overlap
			src = slices.Grow(src, 2000)[:2000]
			first := rng.IntN(len(mem) - (run + row*(rows-1) + plane*(planes-1)))
			for z := range planes {
				for y := range rows {
					for x := range run {
						apply(first+z*plane+y*row+x, src[z*200+y*7+x])
					}
				}
			}
			reqs = append(reqs, AccumulateStrided(p, k.At(first*size), op, src, Shape{Run: run * size, Dims: []Dim{
				{planes, 200 * size, plane * size}, {rows, 7 * size, row * size},
			}}))
		case kind == 3:
			at := rng.IntN(len(mem))
			want := apply(at, src[0])
			got := Fetch(p, k.At(at*size), op, src[0])
			checks = append(checks, func() {
				v, err := got.Wait(ctx)
				require.NoError(t, err)
				require.Equal(t, want, v, "step %d: %v", step, op)
			})
		default:
			at := rng.IntN(len(mem) - n + 1)
			for i := range src {
				apply(at+i, src[i])
			}
			reqs = append(reqs, Accumulate(p, k.At(at*size), op, src))
		}
		if rng.IntN(8) == 0 || step == 119 {
			require.NoError(t, WaitAll(ctx, reqs...))
			for _, check := range checks {
				check()
			}
			require.Equal(t, model, mem, "step %d", step)
			reqs, checks = nil, nil
		}
	}
}

// Accumulates of all forms, reductions and types, of one rank to another and to itself, are
// in one order and do what they do on plain memory.
func TestAccumulatesAgainstModel(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		mems, keys := share(t, es, 1<<14)
		for to := range es {
			p, k, b := es[0].Peer(to), keys[to], mems[to].Slice(0, 1<<14)
			i32, err := View[int32](b)
			require.NoError(t, err)
			accumulates(t, p, k, i32, 1, map[Reduction]func(a, b int32) int32{
				Sum: func(a, b int32) int32 { return a + b }, Min: func(a, b int32) int32 { return min(a, b) },
				BitXor: func(a, b int32) int32 { return a ^ b }, NoOp: func(a, _ int32) int32 { return a },
				Replace: func(_, b int32) int32 { return b },
			})
			u64, err := View[uint64](b)
			require.NoError(t, err)
			accumulates(t, p, k, u64, 2, map[Reduction]func(a, b uint64) uint64{
				Sum: func(a, b uint64) uint64 { return a + b }, Max: func(a, b uint64) uint64 { return max(a, b) },
				BitAnd: func(a, b uint64) uint64 { return a & b }, BitOr: func(a, b uint64) uint64 { return a | b },
				NoOp: func(a, _ uint64) uint64 { return a }, Replace: func(_, b uint64) uint64 { return b },
			})
			f64, err := View[float64](b)
			require.NoError(t, err)
			accumulates(t, p, k, f64, 3, map[Reduction]func(a, b float64) float64{
				Sum: func(a, b float64) float64 { return a + b }, Max: func(a, b float64) float64 { return max(a, b) },
				NoOp: func(a, _ float64) float64 { return a }, Replace: func(_, b float64) float64 { return b },
			})
		}
	})
}

// All ranks reserve ranges in the same bins: no two get the same number, and none is left out.
func TestGetAccumulateReserves(t *testing.T) {
	onAll(t, 3, func(t *testing.T, es []*Engine) {
		const bins, rounds = 1500, 5
		mems, keys := share(t, es, 8*bins)
		got := make([][][]uint64, len(es))
		together(t, es, func(ctx context.Context, e *Engine) error {
			ones := make([]uint64, bins)
			for i := range ones {
				ones[i] = 1
			}
			for range rounds {
				old := make([]uint64, bins)
				if err := GetAccumulate(e.Peer(1), old, keys[1].At(0), Sum, ones).Wait(ctx); err != nil {
					return err
				}
				got[e.Rank()] = append(got[e.Rank()], old)
			}
			return nil
		})
		all := slices.Concat(got...)
		for bin := range bins {
			var numbers []uint64
			for _, old := range all {
				numbers = append(numbers, old[bin])
			}
			slices.Sort(numbers)
			for i, n := range numbers {
				require.EqualValues(t, i, n, "bin %d", bin)
			}
		}
		final, err := View[uint64](mems[1].Slice(0, 8*bins))
		require.NoError(t, err)
		require.EqualValues(t, len(es)*rounds, final[bins-1])
	})
}

// A column of a matrix is one request, not one for each row.
func TestAccumulateStridedIsOneRequest(t *testing.T) {
	es := open(t, 2, "tcp")
	_, keys := share(t, es, 1<<16)
	ones := make([]float64, 128)
	shape := Shape2D(128, 8, 8, 512)
	require.NoError(t, AccumulateStrided(es[0].Peer(1), keys[1].At(0), Sum, ones, shape).Wait(testutil.Context(t, testutil.Limit)))
	require.EqualValues(t, 1, es[1].Stats().Served)
}

func TestAccumulatePiecesRefused(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 4096)
		e := es[1]
		noWrite, err := e.Alloc(4096, PeersAtomic, PeersRead)
		require.NoError(t, err)
		p, k, xs := es[0].Peer(1), keys[1], make([]int64, 4)
		for what, c := range map[string]struct {
			req  Request
			want error
		}{
			"length":          {GetAccumulate(p, xs[:3], k.At(0), Sum, xs), ErrLength},
			"no source":       {GetAccumulate(p, xs, k.At(0), Sum, nil), ErrLength},
			"bounds":          {GetAccumulate(p, xs, k.At(4072), Sum, xs), ErrBounds},
			"align":           {GetAccumulate(p, xs, k.At(4), Sum, xs), ErrAlign},
			"no-op of none":   {AccumulateV(p, []Span{k.Slice(0, 32)}, NoOp, xs), ErrInvalid},
			"reduction":       {GetAccumulate(p, xs, k.At(0), NoOp+1, xs), ErrInvalid},
			"bits of floats":  {AccumulateV(p, []Span{k.Slice(0, 8)}, BitOr, []float64{1}), ErrInvalid},
			"right":           {AccumulateV(p, []Span{noWrite.Key().Slice(0, 32)}, Sum, xs), ErrRemoteAccess},
			"pieces":          {AccumulateV(p, []Span{k.Slice(0, 8)}, Sum, xs), ErrLength},
			"negative":        {AccumulateV(p, []Span{k.Slice(0, -8)}, Sum, xs), ErrBounds},
			"part of element": {AccumulateV(p, []Span{k.Slice(0, 12), k.Slice(16, 20)}, Sum, xs), ErrAlign},
			"run":             {AccumulateStrided(p, k.At(0), Sum, xs, Shape{Run: 4}), ErrAlign},
			"stride":          {AccumulateStrided(p, k.At(0), Sum, xs, Shape2D(2, 8, 8, 12)), ErrAlign},
			"start":           {AccumulateStrided(p, k.At(4), Sum, xs, Shape2D(2, 8, 8, 16)), ErrAlign},
			"extent":          {AccumulateStrided(p, k.At(0), Sum, xs, Shape2D(2, 8, 8, 4096)), ErrBounds},
			"local extent":    {AccumulateStrided(p, k.At(0), Sum, xs, Shape2D(5, 8, 8, 8)), ErrBounds},
			"repeated":        {AccumulateStrided(p, k.At(0), Sum, xs, Shape{Run: 8, Dims: []Dim{{1 << 40, 0, 0}}}), ErrTooLarge},
			"shape":           {AccumulateStrided(p, k.At(0), Sum, xs, Shape{Run: -8}), ErrShape},
			"nothing":         {AccumulateStrided(p, k.At(0), Sum, xs, Shape2D(0, 8, 8, 8)), nil},
			"nothing at all":  {GetAccumulate(p, nil, k.At(0), Sum, []int64{}), nil},
			"load":            {GetAccumulate(p, xs, noWrite.Key().At(0), NoOp, nil), nil},
		} {
			require.ErrorIs(t, c.req.Wait(ctx), c.want, what)
		}
		require.Equal(t, make([]byte, 4096), mems[1].Bytes())

		// The target refuses a key that is not valid any more. Nothing behind that piece is
		// changed, and the connection stays.
		gone, err := e.Alloc(4096)
		require.NoError(t, err)
		stale := gone.Key()
		require.NoError(t, gone.Close())
		require.ErrorIs(t, AccumulateV(p, []Span{stale.Slice(0, 8), k.Slice(0, 24)}, Sum, []int64{1, 1, 1, 1}).Wait(ctx), ErrRemoteAccess)
		require.Equal(t, make([]byte, 4096), mems[1].Bytes())
		require.NoError(t, GetAccumulate(p, xs, k.At(0), Sum, []int64{1, 1, 1, 1}).Wait(ctx))
		require.NoError(t, p.Stats().Err)
	})
}

// The source of an accumulate is in use until the request is complete.
func TestSourceOfAnAccumulateIsInUse(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		const size = 8 << 20
		ctx := testutil.Context(t, testutil.Limit)
		_, keys := share(t, es, size)
		for _, p := range []*Peer{es[0].Peer(0), es[0].Peer(1)} {
			src, err := es[0].Alloc(size)
			require.NoError(t, err)
			words, err := View[uint64](src.Slice(0, size))
			require.NoError(t, err)
			r := Accumulate(p, keys[p.Rank()].At(0), Sum, words)
			closed := src.Close()
			require.True(t, closed != nil || r.Done(), "closed while it is read")
			require.NoError(t, r.Wait(ctx))
			if closed != nil {
				require.ErrorIs(t, closed, ErrInUse)
				require.NoError(t, src.Close())
			}
		}
	})
}

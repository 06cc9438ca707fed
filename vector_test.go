package rma

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// cutLocal and cutRemote divide n bytes from off on in pieces with gaps.
func cut(rng *rand.Rand, n, size int) (offs, lens []int) {
	at := 0
	for n > 0 {
		k := min(n, rng.IntN(300))
		at += rng.IntN(40)
		if at+n+60 > size { // no room for more gaps
			k = n
		}
		offs, lens = append(offs, at), append(lens, k)
		at, n = at+k, n-k
	}
	return offs, lens
}

// Lists cut differently on both sides: every byte arrives where it should and no
// other byte changes; the shuffled order of pieces counts.
func TestVectors(t *testing.T) {
	onAllPieces(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		const size = 1 << 16
		mems, keys := share(t, es, size)
		rng := rand.New(rand.NewPCG(7, 8))
		for round := range 20 {
			to := round % 2
			p := es[0].Peer(to)
			dst, err := es[to].Alloc(size)
			require.NoError(t, err)
			key := dst.Key()
			total := []int{0, 1, 100, 5000, 30_000}[rng.IntN(5)]
			lo, ln := cut(rng, total, size)
			ro, rn := cut(rng, total, size)
			src := mems[0].Bytes()
			testutil.Fill(src, uint64(round), 0)
			var local []Buffer
			var remote []Span
			for i := range lo {
				local = append(local, mems[0].Slice(lo[i], ln[i]))
			}
			for i := range ro {
				remote = append(remote, key.Slice(ro[i], rn[i]))
			}
			rng.Shuffle(len(local), func(i, j int) { local[i], local[j] = local[j], local[i] })
			rng.Shuffle(len(remote), func(i, j int) { remote[i], remote[j] = remote[j], remote[i] })
			var flat []byte
			for _, b := range local {
				flat = append(flat, src[b.off:b.off+b.n]...)
			}
			want := make([]byte, size)
			at := 0
			for _, s := range remote {
				at += copy(want[s.at.off:], flat[at:at+s.n])
			}
			require.NoError(t, p.PutV(remote, local).Wait(ctx))
			require.Equal(t, want, dst.Bytes())

			clear(src)
			require.NoError(t, p.GetV(local, remote).Wait(ctx))
			at = 0
			for _, b := range local {
				at += copy(want[:b.n], flat[at:at+b.n])
				require.Equal(t, want[:b.n], src[b.off:b.off+b.n])
			}
			sum := 0
			for _, b := range src {
				if b != 0 {
					sum++
				}
			}
			require.LessOrEqual(t, sum, total, "only pieces were written")
			require.NoError(t, dst.Close())
		}
		_ = keys
	})
}

func TestVectorRefusals(t *testing.T) {
	es := simulate(t, 2, "sim")
	mems, keys := share(t, es, 4096)
	p, ctx := es[0].Peer(1), context.Background()
	m, k := mems[0], &keys[1]
	for name, c := range map[string]struct {
		r    Request
		want error
	}{
		"lengths":        {p.PutV([]Span{k.Slice(0, 9)}, []Buffer{m.Slice(0, 10)}), ErrLength},
		"put overlaps":   {p.PutV([]Span{k.Slice(0, 9), k.Slice(8, 2)}, []Buffer{m.Slice(0, 11)}), ErrOverlap},
		"get overlaps":   {p.GetV([]Buffer{m.Slice(0, 9), m.Slice(8, 2)}, []Span{k.Slice(0, 11)}), ErrOverlap},
		"local bounds":   {p.PutV([]Span{k.Slice(0, 9)}, []Buffer{m.Slice(4090, 9)}), ErrBounds},
		"local negative": {p.PutV([]Span{k.Slice(0, 9)}, []Buffer{m.Slice(4, -9)}), ErrBounds},
		"remote bounds":  {p.PutV([]Span{k.Slice(4090, 9)}, []Buffer{m.Slice(0, 9)}), ErrBounds},
		"remote length":  {p.PutV([]Span{k.Slice(0, -1)}, []Buffer{m.Slice(0, 9)}), ErrBounds},
		"foreign":        {p.PutV([]Span{k.Slice(0, 9)}, []Buffer{mems[1].Slice(0, 9)}), ErrForeign},
		"wrong rank":     {p.PutV([]Span{keys[0].Slice(0, 9)}, []Buffer{m.Slice(0, 9)}), ErrWrongPeer},
		"no key":         {p.GetV([]Buffer{m.Slice(0, 9)}, []Span{{n: 9}}), ErrBadKey},

		"shape bounds here":  {p.PutStrided(k.At(0), m.Slice(0, 99), Shape2D(10, 5, 10, 5)), nil},
		"shape bounds here+": {p.PutStrided(k.At(0), m.Slice(0, 94), Shape2D(10, 5, 10, 5)), ErrBounds},
		"shape bounds there": {p.PutStrided(k.At(4002), m.Slice(0, 4096), Shape2D(10, 5, 5, 10)), ErrBounds},
		"shape overlaps":     {p.PutStrided(k.At(0), m.Slice(0, 4096), Shape2D(10, 5, 5, 4)), ErrOverlap},
		"shape may repeat":   {p.PutStrided(k.At(0), m.Slice(0, 4096), Shape2D(10, 5, 0, 5)), nil},
		"shape negative":     {p.GetStrided(m.Slice(0, 4096), k.At(0), Shape2D(10, 5, -5, 5)), ErrShape},
		"shape too large":    {p.GetStrided(m.Slice(0, 4096), k.At(0), Shape2D(math.MaxInt, 8, 8, 8)), ErrShape},
		"dimensions":         {p.GetStrided(m.Slice(0, 4096), k.At(0), Shape{Run: 1, Dims: make([]Dim, MaxDims+1)}), ErrShape},
	} {
		err := c.r.Wait(ctx)
		if c.want == nil {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorIs(t, err, c.want, name)
		var pe *PeerError
		require.ErrorAs(t, err, &pe, name)
	}
}

// Shapes of one to four dimensions move the same bytes as nested loops.
func TestStrided(t *testing.T) {
	onAllPieces(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		const size = 1 << 18
		mems, keys := share(t, es, size)
		p := es[0].Peer(1)
		rng := rand.New(rand.NewPCG(9, 10))
		for round := range 24 {
			// Strides grow from the inside out, with gaps now and then.
			shape := Shape{Run: 1 + rng.IntN(40)}
			l, r := shape.Run, shape.Run
			for range 1 + rng.IntN(3) {
				d := Dim{Count: 1 + rng.IntN(12), Local: l + rng.IntN(2)*rng.IntN(20), Remote: r + rng.IntN(2)*rng.IntN(20)}
				if d.Count*max(d.Local, d.Remote) > size/2 {
					break
				}
				l, r = d.Count*d.Local, d.Count*d.Remote
				shape.Dims = append([]Dim{d}, shape.Dims...)
			}
			src, dst := mems[0].Bytes(), mems[1].Bytes()
			testutil.Fill(src, uint64(round), 0)
			clear(dst)
			want := make([]byte, size)
			var loops func(dims []Dim, l, r int, move func(l, r int))
			loops = func(dims []Dim, l, r int, move func(l, r int)) {
				if len(dims) == 0 {
					move(l, r)
					return
				}
				for i := range dims[0].Count {
					loops(dims[1:], l+i*dims[0].Local, r+i*dims[0].Remote, move)
				}
			}
			base := rng.IntN(100)
			loops(shape.Dims, 0, base, func(l, r int) { copy(want[r:r+shape.Run], src[l:]) })
			require.NoError(t, p.PutStrided(keys[1].At(base), mems[0].Slice(0, size), shape).Wait(ctx))
			require.Equal(t, want, dst, "%+v", shape)
			clear(src)
			back := make([]byte, size)
			loops(shape.Dims, 0, base, func(l, r int) { copy(back[l:l+shape.Run], dst[r:]) })
			require.NoError(t, p.GetStrided(mems[0].Slice(0, size), keys[1].At(base), shape).Wait(ctx))
			require.Equal(t, back, src, "%+v", shape)
		}
		// More runs than any queue holds, and a request longer than the link takes.
		testutil.Fill(mems[0].Bytes(), 77, 0)
		require.NoError(t, p.PutStrided(keys[1].At(0), mems[0].Slice(0, size), Shape2D(5000, 8, 8, 24)).Wait(ctx))
		for i := range 5000 {
			require.Equal(t, mems[0].Bytes()[8*i:8*i+8], mems[1].Bytes()[24*i:24*i+8])
		}
		require.NoError(t, p.Put(keys[1].At(8), mems[0].Slice(0, size-8)).Wait(ctx))
		require.NoError(t, testutil.Verify(mems[1].Bytes()[8:], 77, 0))
	})
}

// An operation of many pieces that fails half way ends with one error, and only when none
// of its requests is in flight.
func TestVectorToAPeerThatLeaves(t *testing.T) {
	onAllPieces(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 1<<18)
		p := es[0].Peer(1)
		var reqs []Request
		for range 40 {
			reqs = append(reqs, p.PutStrided(keys[1].At(0), mems[0].Slice(0, 1<<18), Shape2D(2000, 8, 8, 24)))
		}
		go es[1].Close()
		failed := 0
		for _, r := range reqs {
			if err := r.Wait(ctx); err != nil {
				var pe *PeerError
				require.ErrorAs(t, err, &pe)
				require.Equal(t, "put", pe.Op)
				failed++
			}
		}
		testutil.Eventually(t, testutil.Limit, func() bool {
			return p.PutStrided(keys[1].At(0), mems[0].Slice(0, 1<<18), Shape2D(2000, 8, 8, 24)).Wait(ctx) != nil
		}, "an error")
		s := es[0].Stats()
		require.Zero(t, s.InFlight+s.Queued)
		require.GreaterOrEqual(t, int(s.Failed), failed)
	})
}

// If the target's memory is mapped, the runs of a shape and the pieces of a vector take no
// requests: a queue that is far too short for them is never full. Later operations see all
// of them.
func TestShapesOnMappedMemory(t *testing.T) {
	es := open(t, 2, "shm")
	ctx := testutil.Context(t, testutil.Limit)
	mems, keys := share(t, es, 1<<18)
	p := es[0].Peer(1)
	soon(t, func() Request { return p.Put(keys[1].At(0), mems[0].Slice(0, 8)) })
	before := es[0].Stats()
	testutil.Fill(mems[0].Bytes(), 5, 0)
	var spans []Span
	for i := range 5000 {
		spans = append(spans, keys[1].Slice(16*i, 8))
	}
	for _, put := range []Request{
		p.PutStrided(keys[1].At(0), mems[0].Slice(0, 40000), Shape2D(5000, 8, 8, 24)),
		p.PutV(spans, []Buffer{mems[0].Slice(0, 40000)}),
	} {
		get := p.Get(mems[0].Slice(1<<17, 1<<17), keys[1].At(0))
		require.NoError(t, WaitAll(ctx, put, get))
		require.Equal(t, mems[1].Bytes()[:1<<17], mems[0].Bytes()[1<<17:])
	}
	for i := range 5000 {
		require.Equal(t, mems[0].Bytes()[8*i:8*i+8], mems[1].Bytes()[16*i:16*i+8])
	}
	require.NoError(t, p.GetStrided(mems[0].Slice(1<<17, 40000), keys[1].At(0), Shape2D(5000, 8, 8, 16)).Wait(ctx))
	require.Equal(t, mems[0].Bytes()[:40000], mems[0].Bytes()[1<<17:][:40000])
	s := es[0].Stats()
	require.Zero(t, s.Retries-before.Retries)
	require.EqualValues(t, 2, s.Puts-before.Puts)
}

package mr

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/testutil"
)

func newArena(tb testing.TB, d *Domain, o ArenaOptions) *Arena {
	a, err := NewArena(d, o)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, a.Close()); require.Zero(tb, a.held) })
	return a
}

func TestClasses(t *testing.T) {
	var sizes []int
	for c := range 15 {
		sizes = append(sizes, classSize(c)/unit)
	}
	require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28}, sizes)
	check := func(n int) {
		c := classOf(n)
		size := classSize(c)
		require.GreaterOrEqual(t, size, n)
		require.Less(t, float64(size), 1.25*float64(n)+unit)
		require.Less(t, c, maxClasses)
		if c > 0 {
			require.Less(t, classSize(c-1), n)
		}
	}
	for n := 1; n < 1<<14; n++ {
		check(n)
	}
	for n := 1 << 14; n <= maxSlab/4; n = n*17/16 + 1 {
		check(n)
	}
	check(maxSlab / 4)
}

// model is what a piece should look like.
type modelPiece struct {
	Piece
	p    offheap.Purpose
	seed uint64
}

// A random run against a model: pieces hold what was written to them (so that
// none overlap), sizes, alignment, purposes, the limit and the bound on waste
// hold, freed pieces are dead.
func TestArenaAgainstModel(t *testing.T) { eachLink(t, arenaModel) }

func arenaModel(t *testing.T, d *Domain, rails []*rail) {
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 1))
		o := ArenaOptions{Slab: []int{64 << 10, 20 << 10, 128 << 10}[seed]}
		o.Limit = 24 * int64(o.Slab)
		a := newArena(t, d, o)
		slab := int64(offheap.RoundUp(o.Slab))
		var live, dead []modelPiece
		var use, largeBytes [offheap.Purposes]int64
		peak, count := map[int]int{}, map[int]int{}
		limited := 0
		free := func(i int) {
			m := live[i]
			require.NoError(t, testutil.Verify(m.Bytes(), m.seed, 0))
			require.NoError(t, a.Free(m.Piece))
			live = slices.Delete(live, i, i+1)
			if m.n > a.small {
				use[m.p] -= int64(offheap.RoundUp(m.n))
				largeBytes[m.p] -= int64(offheap.RoundUp(m.n))
			} else {
				use[m.p] -= int64(classSize(classOf(m.n)))
				count[classOf(m.n)]--
			}
			dead = append(dead, m)
		}
		for step := range 2000 {
			grow := 60
			if step/500%2 == 1 {
				grow = 44
			}
			if rng.IntN(100) < grow {
				n := 1 + int(math.Exp(rng.Float64()*math.Log(float64(o.Slab))))
				p := offheap.Purpose(rng.IntN(offheap.Purposes))
				held := a.held
				piece, err := a.Alloc(n, p)
				if err != nil {
					require.ErrorIs(t, err, ErrLimit)
					need := slab
					if n > a.small {
						need = int64(offheap.RoundUp(n))
					}
					require.Greater(t, a.held+need, o.Limit)
					require.LessOrEqual(t, a.held, held)
					limited++
					if len(live) > 0 {
						free(rng.IntN(len(live)))
					}
					continue
				}
				m := modelPiece{Piece: piece, p: p, seed: uint64(step)}
				b := m.Bytes()
				require.Len(t, b, n)
				require.Equal(t, n, cap(b))
				require.Zero(t, fabric.Addr(b)%unit)
				testutil.Fill(b, m.seed, 0)
				live = append(live, m)
				if n > a.small {
					use[p] += int64(offheap.RoundUp(n))
					largeBytes[p] += int64(offheap.RoundUp(n))
				} else {
					c := classOf(n)
					use[p] += int64(classSize(c))
					count[c]++
					peak[c] = max(peak[c], count[c])
				}
			} else if len(live) > 0 {
				free(rng.IntN(len(live)))
			}
			if step%8 != 0 {
				continue
			}
			bound := int64(0)
			for c, m := range peak {
				per := int(slab) / classSize(c)
				bound += slab * int64((m+per-1)/per)
			}
			for p := range use {
				require.Equal(t, use[p], a.use[p])
				bound += largeBytes[p]
			}
			require.LessOrEqual(t, a.held, bound)
			require.LessOrEqual(t, a.held, o.Limit)
		}
		for _, m := range dead {
			require.False(t, m.Live())
			require.Nil(t, m.Bytes())
			require.ErrorIs(t, a.Free(m.Piece), ErrFreed)
		}
		require.ErrorIs(t, a.Close(), ErrInUse)
		for len(live) > 0 {
			free(len(live) - 1)
		}
		require.NoError(t, a.Trim())
		require.Zero(t, a.held)
		require.Positive(t, limited, "the limit was not tried")
		require.Greater(t, len(dead), 500)
	}
}

// Peers reach a piece by its key, the owner by its SGEs, on every rail; and the
// pieces beside it keep their bytes.
func TestPiecesOverLinks(t *testing.T) { eachLink(t, pieces) }

func pieces(t *testing.T, d *Domain, rails []*rail) {
	a := newArena(t, d, ArenaOptions{Slab: 64 << 10})
	for _, n := range []int{200, 4096, 16 << 10, 40000} {
		var ps [3]Piece
		for i := range ps {
			var err error
			ps[i], err = a.Alloc(n, offheap.Staging)
			require.NoError(t, err)
			testutil.Fill(ps[i].Bytes(), uint64(i), 0)
		}
		k, err := pieceKey(ps[1])
		require.NoError(t, err)
		require.EqualValues(t, n, k.Len)
		require.Equal(t, fabric.Addr(ps[1].Bytes()), k.Addr)
		for i, x := range rails {
			rk := on(&k, uint8(i+1))
			if x.local == nil {
				x.connect(t)
			}
			testutil.Fill(x.local.Bytes()[:n], 77, 0)
			require.NoError(t, x.access(t, fabric.OpWrite, rk, k.Addr, n))
			require.NoError(t, testutil.Verify(ps[1].Bytes(), 77, 0))
			require.NoError(t, testutil.Verify(ps[0].Bytes(), 0, 0))
			require.NoError(t, testutil.Verify(ps[2].Bytes(), 2, 0))
			s, err := ps[1].SGE(i, 7, 9)
			require.NoError(t, err)
			require.Equal(t, fabric.NewSGE(ps[1].Bytes()[7:16], ps[1].slab.reg.LKey(i)), s)
		}
		for _, c := range [][2]int{{-1, 1}, {0, -1}, {0, n + 1}, {n, 1}, {1, n}, {math.MaxInt, 1}} {
			_, err = ps[1].SGE(0, c[0], c[1])
			require.ErrorIs(t, err, ErrBounds)
		}
		for _, p := range ps {
			require.NoError(t, a.Free(p))
			_, err = p.SGE(0, 0, 1)
			require.ErrorIs(t, err, ErrFreed)
		}
	}
}

func TestArenaMisuse(t *testing.T) {
	d, _ := open(t, "sim")
	a, other := newArena(t, d, ArenaOptions{}), newArena(t, d, ArenaOptions{})
	for _, n := range []int{0, -1, math.MinInt} {
		_, err := a.Alloc(n, offheap.Rings)
		require.ErrorIs(t, err, ErrSize)
	}
	_, err := a.Alloc(1, offheap.Purpose(offheap.Purposes))
	require.ErrorIs(t, err, ErrSize)
	_, err = a.Alloc(math.MaxInt, offheap.Rings)
	require.ErrorIs(t, err, ErrLimit)
	p, err := a.Alloc(100, offheap.Rings)
	require.NoError(t, err)
	require.ErrorIs(t, other.Free(p), ErrFreed)
	require.ErrorIs(t, a.Free(Piece{}), ErrFreed)
	require.Nil(t, Piece{}.Bytes())
	require.Equal(t, 100, p.n)
	require.NoError(t, a.Free(p))
	again, err := a.Alloc(100, offheap.Rings)
	require.NoError(t, err)
	require.Equal(t, p.slot, again.slot, "the slot is not used again: the test tests nothing")
	require.ErrorIs(t, a.Free(p), ErrFreed, "double free of a slot that has another user")
	require.True(t, again.Live())
	require.NoError(t, a.Free(again))
	// The slab changes its class: the piece of the old one stays dead.
	for i := range 300 {
		q, err := a.Alloc(64*(1+i%40), offheap.Rings)
		require.NoError(t, err)
		require.False(t, p.Live())
		require.False(t, again.Live())
		require.NoError(t, a.Free(q))
	}
	require.NoError(t, a.Close())
	_, err = a.Alloc(1, offheap.Rings)
	require.ErrorIs(t, err, ErrClosed)
	for _, o := range []ArenaOptions{{Limit: -1}, {Slab: -1}, {Slab: maxSlab + 1}} {
		_, err := NewArena(d, o)
		require.ErrorIs(t, err, ErrSize)
	}
}

// A large piece that is freed while a peer's descriptor holds it goes when that
// is through.
func TestLargePieceHeldByAPeer(t *testing.T) {
	d, _ := open(t, "tcp")
	a := newArena(t, d, ArenaOptions{Slab: 16 << 10})
	p, err := a.Alloc(10<<10, offheap.Rings)
	require.NoError(t, err)
	k, err := pieceKey(p)
	require.NoError(t, err)
	mem, held, err := d.Resolve(k.Ref, k.Addr, k.Len, fabric.AccessRemoteWrite)
	require.NoError(t, err)
	require.NoError(t, a.Free(p))
	require.ErrorIs(t, a.Close(), ErrInUse)
	require.EqualValues(t, offheap.RoundUp(10<<10), a.held)
	mem[0] = 1
	require.NoError(t, held.Release())
	require.NoError(t, a.Close())
	require.Zero(t, a.held)
}

// Without reserved huge pages, the usual case, memory comes from what there is.
func TestHugePagesFallBack(t *testing.T) {
	d, rails := open(t, "tcp")
	a := newArena(t, d, ArenaOptions{})
	before := offheap.InUse(offheap.Arenas)
	p, err := a.Alloc(100<<10, offheap.Regions)
	require.NoError(t, err)
	require.EqualValues(t, offheap.HugePage, offheap.InUse(offheap.Arenas)-before)
	require.Zero(t, p.slab.reg.Key().Addr%uint64(offheap.PageSize))
	testutil.Fill(p.Bytes(), 3, 0)
	k, err := pieceKey(p)
	require.NoError(t, err)
	rk := on(&k, 1)
	require.NoError(t, rails[0].access(t, fabric.OpRead, rk, k.Addr, 1<<16))
	require.NoError(t, testutil.Verify(rails[0].local.Bytes(), 3, 0))
	require.NoError(t, a.Free(p))
	require.NoError(t, a.Close())
}

func TestArenaAllocatesNothing(t *testing.T) {
	d, _ := open(t, "sim")
	a := newArena(t, d, ArenaOptions{})
	var ps [100]Piece
	require.Zero(t, testing.AllocsPerRun(20, func() {
		for i := range ps {
			p, err := a.Alloc(100+40*i, offheap.Staging)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = p.SGE(0, 0, 1); err != nil || len(p.Bytes()) != p.n {
				t.Fatal(err)
			}
			ps[i] = p
		}
		for i := range ps {
			if err := a.Free(ps[i]); err != nil {
				t.Fatal(err)
			}
		}
	}))
}

func BenchmarkArena(b *testing.B) {
	d, _ := open(b, "tcp")
	a := newArena(b, d, ArenaOptions{})
	for _, n := range []int{64, 4096, 100 << 10} {
		b.Run(fmt.Sprintf("alloc+free/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p, err := a.Alloc(n, offheap.Staging)
				if err != nil {
					b.Fatal(err)
				}
				if err := a.Free(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("64 live", func(b *testing.B) {
		b.ReportAllocs()
		var ps [64]Piece
		for i := range ps {
			ps[i], _ = a.Alloc(64+i*97, offheap.Staging)
		}
		for i := 0; b.Loop(); i++ {
			j := i * 37 % 64
			if err := a.Free(ps[j]); err != nil {
				b.Fatal(err)
			}
			ps[j], _ = a.Alloc(64+j*97, offheap.Staging)
		}
		for i := range ps {
			require.NoError(b, a.Free(ps[i]))
		}
	})
}

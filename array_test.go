package rma

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
)

// Elements are accessed by rank and index, from the rank's own part and from any memory;
// parts may differ in size, and be empty.
func TestArray(t *testing.T) {
	onAll(t, 3, func(t *testing.T, es []*Engine) {
		together(t, es, func(ctx context.Context, e *Engine) error {
			me, n := e.Rank(), e.Size()
			w, err := e.Window(ctx, 8*100*me+4) // nothing at rank 0
			if err != nil {
				return err
			}
			a, err := ArrayOf[float64](w)
			if err != nil {
				return err
			}
			for r := range n {
				if a.Len(r) != 100*r {
					return fmt.Errorf("%d elements at rank %d", a.Len(r), r)
				}
			}
			if len(a.Own()) != 100*me || a.Window() != w {
				return fmt.Errorf("%d elements of my own", len(a.Own()))
			}
			for i := range a.Own() {
				a.Own()[i] = float64(1000*me + i)
			}
			if err := e.Barrier(ctx); err != nil {
				return err
			}
			got := make([]float64, 50)
			for r := 1; r < n; r++ {
				if err := a.Get(got, r, 25).Wait(ctx); err != nil {
					return err
				}
				if got[0] != float64(1000*r+25) || got[49] != float64(1000*r+74) {
					return fmt.Errorf("got %v of rank %d", got, r)
				}
			}
			if err := e.Barrier(ctx); err != nil {
				return err
			}
			// Each writes to its own elements of the last rank, from either kind of memory.
			last := n - 1
			if err := a.Put(last, 100+10*me, []float64{1, 2, float64(me)}).Wait(ctx); err != nil {
				return err
			}
			if me == 1 {
				if err := WaitAll(ctx, a.Put(last, 0, a.Own()[90:]), a.Get(a.Own()[:2], last, 150)); err != nil {
					return err
				}
				if a.Own()[1] != 2151 {
					return fmt.Errorf("got %v", a.Own()[:2])
				}
			}
			if err := e.Barrier(ctx); err != nil {
				return err
			}
			if me == last {
				for r := range n {
					if !slices.Equal(a.Own()[100+10*r:][:3], []float64{1, 2, float64(r)}) {
						return fmt.Errorf("found %v of rank %d", a.Own()[100:], r)
					}
				}
				if a.Own()[0] != 1090 || a.Own()[9] != 1099 || a.Own()[10] != 2010 {
					return fmt.Errorf("found %v", a.Own()[:11])
				}
			}
			return w.Free(ctx)
		})
	})
}

func TestArrayRefusals(t *testing.T) {
	es := simulate(t, 1, "sim")
	ctx := testutil.Context(t, testutil.Limit)
	w, err := es[0].Window(ctx, 80)
	require.NoError(t, err)
	a, err := ArrayOf[uint64](w)
	require.NoError(t, err)
	one := make([]uint64, 1)
	for i, r := range []Request{
		a.Put(0, -1, one), a.Put(0, 10, one), a.Put(0, math.MaxInt, one), a.Put(0, math.MinInt, one), a.Put(0, math.MaxInt/8+1, one),
		a.Put(0, 11, nil), a.Get(one, 0, 10), a.Get(a.Own()[9:], 0, 10),
		a.Put(0, 9, a.Own()[:2]), es[0].Peer(0).Put(a.At(0, 0), a.Slice(9, 2)), es[0].Peer(0).Put(a.At(0, 0), a.Slice(-1, 2)),
		es[0].Peer(0).Put(a.At(0, 0), a.Slice(1, -1)), es[0].Peer(0).Put(a.At(0, 0), a.Slice(math.MaxInt, 1)), Fetch(es[0].Peer(0), a.At(0, 10), Sum, uint64(1)).Request,
	} {
		require.ErrorIs(t, r.Wait(ctx), ErrBounds, "case %d", i)
	}
	require.NoError(t, WaitAll(ctx, a.Put(0, 10, nil), a.Get(nil, 0, 0), a.Put(0, 9, a.Own()[3:4])))
	require.Panics(t, func() { a.At(1, 0) })

	mem := Bytes(make([]uint64, 9))
	odd, err := es[0].Register(mem[2:])
	require.NoError(t, err)
	v, err := es[0].WindowOf(ctx, odd)
	require.NoError(t, err)
	_, err = ArrayOf[uint32](v)
	require.ErrorIs(t, err, ErrAlign)
	short, err := ArrayOf[uint16](v)
	require.NoError(t, err)
	require.Equal(t, 35, short.Len(0))
	require.NoError(t, short.Put(0, 34, []uint16{5}).Wait(ctx))
	require.EqualValues(t, 5, short.Own()[34])
}

// Ranks of one process are on one host; PlaceOf returns the same on all ranks.
func TestPlaceOf(t *testing.T) {
	onAll(t, 3, func(t *testing.T, es []*Engine) {
		for _, e := range es {
			caps := e.links[0].Caps()
			for to := range es {
				got := PlaceOf(e.Peer(to))
				require.Contains(t, []Distance{DistanceCache, DistanceHost, DistanceSelf}, got.Distance)
				require.Equal(t, to == e.Rank(), got.Distance == DistanceSelf)
				require.Equal(t, Place{
					LocalRank: to, LocalSize: 3, Processors: cpu.Allowed().Len(), Distance: got.Distance, Maps: caps.MapsAlloc, AtomicCPU: caps.AtomicCPU,
				}, got)
			}
		}
	})
	require.Equal(t, "network", DistanceNetwork.String())
	require.Equal(t, "unknown", Distance(9).String())
}

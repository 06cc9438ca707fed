package rma

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/testutil"
)

type celsius float32

func TestTypeOf(t *testing.T) {
	require.Equal(t, onesided.Int32, typeOf[int32]())
	require.Equal(t, onesided.Int64, typeOf[time.Duration]())
	require.Equal(t, onesided.Uint32, typeOf[uint32]())
	require.Equal(t, onesided.Uint64, typeOf[uint64]())
	require.Equal(t, onesided.Float32, typeOf[celsius]())
	require.Equal(t, onesided.Float64, typeOf[float64]())
}

// Accumulates that wait for the slots of a peer, which does not answer, end with the engine.
func TestAccumulatesEndWithTheEngine(t *testing.T) {
	es := open(t, 2, "tcp")
	mems, keys := share(t, es, 64)
	p := es[0].Peer(1)
	require.NoError(t, p.Put(keys[1].At(0), mems[0].Slice(0, 8)).Wait(testutil.Context(t, testutil.Limit)))
	found := make(chan error, 1)
	(*oneSidedHost)(p).FetchSlots(func(_ []byte, err error) { found <- err })
	require.NoError(t, es[0].Close())
	require.ErrorIs(t, <-found, ErrClosed)
}

// All ranks add to the same elements of all, from many goroutines, in pieces of
// more than a slot, while the targets' applications only compute: nothing is lost.
func TestAccumulate(t *testing.T) {
	onAll(t, 3, func(t *testing.T, es []*Engine) {
		const n, workers, rounds = 9000, 2, 4
		mems, keys := share(t, es, 8*n+64)
		var stop atomic.Bool
		defer stop.Store(true)
		go func() {
			for x := 1; !stop.Load(); x *= 3 { // computes, and calls nothing
				runtime.Gosched()
			}
		}()
		together(t, es, func(ctx context.Context, e *Engine) error {
			var g errgroup.Group
			for w := range workers {
				g.Go(func() error {
					xs := make([]float64, n)
					for i := range xs {
						xs[i] = float64(1+w) + float64(i)
					}
					var reqs []Request
					for range rounds {
						for to := range es {
							reqs = append(reqs, Accumulate(e.Peer(to), keys[to].At(8), Sum, xs))
						}
					}
					return WaitAll(ctx, reqs...)
				})
			}
			return g.Wait()
		})
		for _, m := range mems {
			got, err := View[float64](m.Slice(8, 8*n))
			require.NoError(t, err)
			for i, x := range got {
				require.Equal(t, float64(3*rounds*(3+2*i)), x, "element %d", i)
			}
			require.Equal(t, make([]byte, 8), m.Bytes()[:8])
			require.Equal(t, make([]byte, 56), m.Bytes()[8+8*n:])
		}
		s := es[0].Stats()
		require.EqualValues(t, workers*rounds*3, s.Accumulates)
		if es[0].Peer(1).Link() != "shm" { // which maps the memory
			require.Positive(t, s.Served)
		}
		require.Zero(t, s.Failed)
	})
}

// Each reduction, on every type: accumulates see earlier puts, those of one rank take place
// in order, and a fence keeps later operations behind them.
func TestAccumulateOrder(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 4096)
		mine, err := View[int64](mems[0].Slice(0, 80))
		require.NoError(t, err)
		for to := range es {
			p, k := es[0].Peer(to), &keys[to]
			for i := range 20 {
				for j := range mine {
					mine[j] = int64(10*j - i)
				}
				put := p.Put(k.At(1024), mems[0].Slice(0, 80))
				a := Accumulate(p, k.At(1024), Prod, []int64{2, 3, 4})
				b := Accumulate(p, k.At(1024), Sum, []int64{1, 1, 1, 1})
				c := Accumulate(p, k.At(1024+8*4), Max, []int64{0, 1000})
				d := Accumulate(p, k.At(1024+8*6), Min, []int64{-1000, 5})
				f := Accumulate(p, k.At(1024+8*8), Replace, []int64{77})
				none := Accumulate(p, k.At(1024), Sum, []int64{})
				p.Fence()
				get := p.Get(mems[0].Slice(2048, 80), k.At(1024))
				require.NoError(t, get.Wait(ctx))
				x := int64(i)
				got, err := View[int64](mems[0].Slice(2048, 80))
				require.NoError(t, err)
				require.Equal(t, []int64{
					2*(0-x) + 1, 3*(10-x) + 1, 4*(20-x) + 1, 30 - x + 1, max(0, 40-x), 1000, -1000, min(5, 70-x), 77, 90 - x,
				}, got, "round %d", i)
				require.NoError(t, WaitAll(ctx, put, a, b, c, d, f, none))
			}
			f32 := []celsius{1.5, 2.5}
			require.NoError(t, Accumulate(p, k.At(2000), Replace, f32).Wait(ctx))
			require.NoError(t, Accumulate(p, k.At(2000), Prod, f32).Wait(ctx))
			got, err := View[celsius](mems[to].Slice(2000, 8))
			require.NoError(t, err)
			require.Equal(t, []celsius{2.25, 6.25}, got)
		}
	})
}

// Exclusive accumulates of one rank, all in flight at once, are combined in the order of the
// calls, on every link, and whether they are one piece or several; those with a result are
// refused.
func TestAccumulateExclusive(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		const n = 9001 // more than two slots
		mems, keys := share(t, es, 8*n+16)
		for to := range es {
			p, at := es[0].Peer(to), keys[to].At(8)
			xs := make([]float64, n)
			got, err := View[float64](mems[to].Slice(8, 8*n))
			require.NoError(t, err)
			for i := range xs {
				xs[i], got[i] = float64(i), 1
			}
			require.NoError(t, WaitAll(ctx,
				Accumulate(p, at, Sum|Exclusive, xs),
				Accumulate(p, at, Prod|Exclusive, xs),
				AccumulateV(p, []Span{keys[to].Slice(8+8*n-8, 8), keys[to].Slice(8, 8*n-8)}, Max|Exclusive, xs),
				AccumulateStrided(p, at, Sum|Exclusive, xs, Shape2D(n/2, 8, 8, 16)), // to every other element
			))
			for i, x := range got {
				above := float64(i + 1) // xs is turned by one element
				if i == n-1 {
					above = 0
				}
				want := max(float64(1+i)*float64(i), above)
				if i%2 == 0 && i/2 < n/2 {
					want += float64(i / 2)
				}
				require.Equal(t, want, x, "element %d", i)
			}
			require.Equal(t, make([]byte, 8), mems[to].Bytes()[:8])
			require.Equal(t, make([]byte, 8), mems[to].Bytes()[8+8*n:])
			require.ErrorIs(t, GetAccumulate(p, xs, at, Sum|Exclusive, xs).Wait(ctx), ErrInvalid)
			require.ErrorIs(t, Fetch(p, at, Sum|Exclusive, 1.5).Request.Wait(ctx), ErrInvalid)
			require.ErrorIs(t, Accumulate(p, at, NoOp|Exclusive, xs).Wait(ctx), ErrInvalid)
			require.ErrorIs(t, Accumulate(p, at, BitOr|Exclusive, xs).Wait(ctx), ErrInvalid)
		}
	})
}

// fetches checks Fetch on values of one type, at both halves of a word.
func fetches[T Element](t *testing.T, p *Peer, k Key, mem []byte, plain map[Reduction]func(a, b T) T, values ...T) {
	ctx := testutil.Context(t, testutil.Limit)
	size := sizeOf[T]()
	for op, f := range plain {
		for i := range values {
			for j, v := range values {
				at := 64 + size*((i+j)%2)
				copy(mem[at:], Bytes(values[i:i+1]))
				before := append([]byte(nil), mem[:128]...)
				got, err := Fetch(p, k.At(at), op, v).Wait(ctx)
				require.NoError(t, err)
				require.Equal(t, values[i], got, "%v of %T", op, v)
				copy(before[at:], Bytes([]T{f(values[i], v)}))
				require.Equal(t, before, mem[:128], "%v of %v and %v", op, values[i], v)
			}
		}
	}
}

// Each reduction of one element returns its previous value, and changes nothing around it.
func TestFetch(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 4096)
		for to := range es {
			p, k, mem := es[0].Peer(to), keys[to], mems[to].Bytes()
			fetches(t, p, k, mem, map[Reduction]func(a, b int32) int32{
				Sum: func(a, b int32) int32 { return a + b }, Min: func(a, b int32) int32 { return min(a, b) },
				BitXor: func(a, b int32) int32 { return a ^ b }, Replace: func(_, b int32) int32 { return b },
			}, -7, 5, 1<<31-1)
			fetches(t, p, k, mem, map[Reduction]func(a, b int64) int64{
				Sum: func(a, b int64) int64 { return a + b }, Max: func(a, b int64) int64 { return max(a, b) },
				BitAnd: func(a, b int64) int64 { return a & b }, BitOr: func(a, b int64) int64 { return a | b },
			}, -7, 5, 1<<62)
			fetches(t, p, k, mem, map[Reduction]func(a, b celsius) celsius{
				Sum: func(a, b celsius) celsius { return a + b }, Prod: func(a, b celsius) celsius { return a * b },
			}, -1.5, 0, 9)
			fetches(t, p, k, mem, map[Reduction]func(a, b float64) float64{
				Sum: func(a, b float64) float64 { return a + b }, Max: func(a, b float64) float64 { return max(a, b) },
			}, -1.5, 0, 1e300)
			for what, r := range map[error]Request{
				ErrInvalid: Fetch(p, k.At(0), BitOr, 1.5).Request, ErrAlign: Fetch(p, k.At(4), Min, 1.5).Request,
				ErrBounds: Fetch(p, k.At(4096), Min, int32(1)).Request,
			} {
				require.ErrorIs(t, r.Wait(ctx), what)
			}
			require.ErrorIs(t, Accumulate(p, k.At(0), BitOr, []float32{1}).Wait(ctx), ErrInvalid)
			require.NoError(t, Accumulate(p, k.At(0), Replace, []uint32{0xf0, 0xff}).Wait(ctx))
			require.NoError(t, Accumulate(p, k.At(0), BitXor, []uint32{0x3c, 0xf}).Wait(ctx))
			got, err := View[uint32](mems[to].Slice(0, 8))
			require.NoError(t, err)
			require.Equal(t, []uint32{0xcc, 0xf0}, got)
		}
	})
}

// Concurrent fetches by many goroutines of all ranks lose nothing: the final sums are
// complete, and the returned values are all intermediate sums, each once.
func TestFetchIsAtomic(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		mems, keys := share(t, es, 64)
		const workers, rounds = 3, 30
		var mu sync.Mutex
		seen := map[float64]int{}
		together(t, es, func(ctx context.Context, e *Engine) error {
			var g errgroup.Group
			for w := range workers {
				g.Go(func() error {
					for i := range rounds {
						v, err := Fetch(e.Peer(0), keys[0].At(8), Sum, 1.0).Wait(ctx)
						if err == nil {
							_, err = Fetch(e.Peer(0), keys[0].At(4), Max, int32(100*w+i)).Wait(ctx)
						}
						if err != nil {
							return err
						}
						Fetch(e.Peer(0), keys[0].At(0), Sum, int32(2)).Forget()
						mu.Lock()
						seen[v]++
						mu.Unlock()
					}
					return e.Peer(0).Flush().Wait(ctx)
				})
			}
			return g.Wait()
		})
		const n = 2 * workers * rounds
		require.Len(t, seen, n)
		f, err := View[float64](mems[0].Slice(8, 8))
		require.NoError(t, err)
		require.Equal(t, []float64{n}, f)
		i, err := View[int32](mems[0].Slice(0, 8))
		require.NoError(t, err)
		require.Equal(t, []int32{2 * n, 100*(workers-1) + rounds - 1}, i)
	})
}

// An accumulate that the target refuses fails alone: the connection remains.
func TestAccumulateRefusals(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		_, keys := share(t, es, 64)
		for to := range es {
			extra, err := es[to].Alloc(64)
			require.NoError(t, err)
			stale := extra.Key()
			require.NoError(t, extra.Close())
			p, k := es[0].Peer(to), &keys[to]
			one := []uint64{1}
			for want, r := range map[error]Request{
				ErrBounds:       Accumulate(p, k.At(64), Sum, one),
				ErrAlign:        Accumulate(p, k.At(4), Sum, one),
				ErrInvalid:      Accumulate(p, k.At(0), 9, one),
				ErrWrongPeer:    Accumulate(p, keys[1-to].At(0), Sum, one),
				ErrRemoteAccess: Accumulate(p, stale.At(0), Sum, make([]int32, 16)),
				nil:             Accumulate(p, k.At(56), Sum, one),
			} {
				require.ErrorIs(t, r.Wait(ctx), want)
			}
			require.NoError(t, p.Flush().Wait(ctx))
		}
	})
}

// A target that dies fails the accumulates in flight, whether its memory for them is set up
// or not.
func TestAccumulateToAPeerThatLeaves(t *testing.T) {
	onAll(t, 3, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		_, keys := share(t, es, 1<<16)
		xs := make([]float32, 1<<14)
		for _, to := range []int{1, 2} {
			p := es[0].Peer(to)
			var reqs []Request
			if to == 1 {
				require.NoError(t, Accumulate(p, keys[to].At(0), Sum, xs).Wait(ctx))
			}
			for range 20 {
				reqs = append(reqs, Accumulate(p, keys[to].At(0), Sum, xs))
			}
			p.Fence()
			reqs = append(reqs, p.FetchAdd(keys[to].At(0), 1).Request)
			require.NoError(t, es[to].Close())
			for _, r := range reqs {
				_ = r.Wait(ctx) // the first ones may have succeeded
			}
			testutil.Eventually(t, testutil.Limit, func() bool { return Accumulate(p, keys[to].At(0), Sum, xs[:1]).Wait(ctx) != nil }, "an error")
			require.False(t, busy(p))
		}
	})
}

func TestAccumulateAllocatesNothing(t *testing.T) {
	if testutil.Race {
		t.Skip("the race detector makes sync.Pool forget")
	}
	alone(t, func(t *testing.T, name string) {
		es := open(t, 2, name)
		_, keys := share(t, es, 1<<16)
		p, ctx := es[0].Peer(1), context.Background()
		xs := make([]float64, 4000)
		for _, n := range []int{1, len(xs)} {
			f := func() {
				if err := Accumulate(p, keys[1].At(0), Sum, xs[:n]).Wait(ctx); err != nil {
					panic(fmt.Sprint(n, err))
				}
			}
			f()
			runtime.GC()
			require.Zero(t, testutil.AllocsPerRun(100, f), "%d elements over %s", n, name)
		}
	})
}

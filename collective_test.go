package rma

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup"
)

// ended returns a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// A barrier whose context ends continues with the next call, in each phase of a job:
// through the server, in the census, and from rank to rank.
func TestBarrierGoesOn(t *testing.T) {
	for before := range seldom + 3 {
		t.Run(fmt.Sprint("after ", before), func(t *testing.T) {
			t.Parallel()
			es := insist(simulate(t, 3, "sim"))
			meet := func(es ...*Engine) {
				together(t, es, func(ctx context.Context, e *Engine) error { return e.Barrier(ctx) })
			}
			for range before {
				meet(es...)
			}
			short, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond) // deadline: it has to end
			defer cancel()
			require.ErrorIs(t, es[0].Barrier(short), context.DeadlineExceeded)
			require.ErrorIs(t, es[0].Barrier(ended()), context.Canceled)
			for range seldom + 3 {
				meet(es...)
			}
			require.Equal(t, es[1].barrier.seq, es[0].barrier.seq)
			require.NotNil(t, es[0].barrier.words)
		})
	}
}

// A window exists on all ranks or on none: when one rank's context ends, all get an
// error that names it, and the next call is a new one.
func TestWindowGivenUp(t *testing.T) {
	onAll(t, 3, func(t *testing.T, es []*Engine) {
		for name, use := range map[string]func(ctx context.Context, e *Engine, mem *Region) error{
			"window": func(ctx context.Context, e *Engine, _ *Region) error {
				w, err := e.Window(ctx, 4096)
				if err == nil {
					err = w.Free(ctx)
				}
				return err
			},
			"window of": func(ctx context.Context, e *Engine, mem *Region) error {
				w, err := e.WindowOf(ctx, mem)
				if err == nil {
					err = w.Free(ctx)
				}
				return err
			},
			"keys": func(ctx context.Context, e *Engine, mem *Region) error {
				_, err := AllGatherKeys(ctx, e, mem)
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				before := es[0].Stats().Regions
				together(t, es, func(ctx context.Context, e *Engine) error {
					mem, err := e.Alloc(4096)
					if err != nil {
						return err
					}
					mine := ctx
					if e.Rank() == 1 {
						mine = ended()
					}
					var pe *PeerError
					err = use(mine, e, mem)
					if !errors.Is(err, ErrGivenUp) || !errors.As(err, &pe) || pe.Rank != 1 {
						return fmt.Errorf("rank %d: %w", e.Rank(), err)
					}
					if errors.Is(err, context.Canceled) != (e.Rank() == 1) {
						return fmt.Errorf("rank %d: whose context ended? %w", e.Rank(), err)
					}
					return errors.Join(use(ctx, e, mem), mem.Close())
				})
				require.Equal(t, before, es[0].Stats().Regions)
			})
		}
	})
}

// A Free that is given up leaves the window unchanged on all ranks.
func TestFreeGivenUp(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		together(t, es, func(ctx context.Context, e *Engine) error {
			w, err := e.Window(ctx, 4096)
			if err != nil {
				return err
			}
			mine := ctx
			if e.Rank() == 1 {
				mine = ended()
			}
			if err := w.Free(mine); !errors.Is(err, ErrGivenUp) {
				return fmt.Errorf("rank %d: %w", e.Rank(), err)
			}
			if err := e.Peer(1-e.Rank()).Put(w.At(1-e.Rank(), 0), w.Slice(8, 8)).Wait(ctx); err != nil {
				return err
			}
			if err := w.Free(ctx); err != nil {
				return err
			}
			return w.Free(ctx)
		})
	})
}

// Windows that ranks free in different orders are not released.
func TestFreeOutOfStep(t *testing.T) {
	es := simulate(t, 2, "sim")
	together(t, es, func(ctx context.Context, e *Engine) error {
		var ws [2]*Window
		for i := range ws {
			var err error
			if ws[i], err = e.Window(ctx, 64); err != nil {
				return err
			}
		}
		if err := ws[e.Rank()].Free(ctx); !errors.Is(err, ErrOutOfStep) {
			return err
		}
		return errors.Join(ws[0].Free(ctx), ws[1].Free(ctx))
	})
}

// If a rank dies during a collective call of the others, all their errors name it.
func TestCollectiveWithoutAPeer(t *testing.T) {
	onAll(t, 3, func(t *testing.T, es []*Engine) {
		ws := make([]*Window, len(es))
		mems := make([]*Region, len(es))
		together(t, es, func(ctx context.Context, e *Engine) (err error) {
			if ws[e.Rank()], err = e.Window(ctx, 64); err == nil {
				mems[e.Rank()], err = e.Alloc(64)
			}
			return err
		})
		go es[2].Close()
		together(t, es[:2], func(ctx context.Context, e *Engine) error {
			mem := mems[e.Rank()]
			for name, call := range map[string]func() error{
				"window":    func() error { _, err := e.Window(ctx, 64); return err },
				"window of": func() error { _, err := e.WindowOf(ctx, mem); return err },
				"keys":      func() error { _, err := AllGatherKeys(ctx, e, mem); return err },
				"barrier":   func() error { return e.Barrier(ctx) },
			} {
				err := call()
				if pe := (*PeerError)(nil); !errors.Is(err, ErrPeerGone) || !errors.As(err, &pe) || pe.Rank != 2 {
					return fmt.Errorf("%s on rank %d: %w", name, e.Rank(), err)
				}
			}
			if err := ws[e.Rank()].Free(ctx); !errors.Is(err, ErrPeerGone) {
				return fmt.Errorf("free on rank %d: %w", e.Rank(), err)
			}
			if ws[e.Rank()].Region().reg.Live() {
				return errors.New("a window of a job that has lost a rank was not released")
			}
			return nil
		})
	})
}

// If the rank that serves the wire-up is gone, errors name it.
func TestServerGone(t *testing.T) {
	srv, config := rendezvousServer(t, wireup.ServerConfig{Size: 2}, "shm")
	two := openAll(t, 2, config, func(*Config) {})
	require.Zero(t, two[0].server.Load())
	require.NoError(t, srv.Close())
	<-two[0].job.Done()
	_, err := two[0].Window(t.Context(), 64)
	require.ErrorIs(t, err, ErrServerGone)
	require.NotErrorIs(t, err, ErrPeerGone)
	two[0].server.Store(2)
	_, err = two[0].Window(t.Context(), 64)
	var pe *PeerError
	require.ErrorAs(t, err, &pe)
	require.Equal(t, 1, pe.Rank)
	require.ErrorIs(t, err, ErrServerGone)
	require.ErrorIs(t, err, ErrPeerGone)
}

// Whichever collective calls ranks make, and whenever their contexts end, all agree on the
// outcome of each call, and the next call joins the others' next call.
func TestMM_CollectivesEndAlike(t *testing.T) {
	onAll(t, 3, func(t *testing.T, es []*Engine) {
		const calls = 60
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		insist(es)
		before := es[0].Stats().Regions
		ends := make([][]string, len(es))
		together(t, es, func(ctx context.Context, e *Engine) error {
			kinds := rand.New(rand.NewPCG(seed, 0)) // alike on all ranks
			own := rand.New(rand.NewPCG(seed, uint64(1+e.Rank())))
			var windows []*Window
			mem, err := e.Alloc(64)
			if err != nil {
				return err
			}
			note := func(err error) (over bool) {
				pe := (*PeerError)(nil)
				switch {
				case errors.Is(err, ErrUndecided):
					return false
				case errors.As(err, &pe) && errors.Is(err, ErrGivenUp):
					ends[e.Rank()] = append(ends[e.Rank()], fmt.Sprint("given up by ", pe.Rank))
				default:
					ends[e.Rank()] = append(ends[e.Rank()], fmt.Sprint(err))
				}
				return true
			}
			// repeat calls until the end is known; the first try may be short of time.
			repeat := func(call func(ctx context.Context) error) error {
				first := ctx
				switch own.IntN(6) {
				case 0:
					first = ended()
				case 1:
					var cancel context.CancelFunc
					first, cancel = context.WithTimeout(ctx, time.Duration(own.IntN(400))*time.Microsecond) // deadline: some calls are given up
					defer cancel()
				}
				err := call(first)
				for !note(err) {
					err = call(ctx)
				}
				return err
			}
			for i := range calls {
				switch kind := kinds.IntN(5); {
				case kind == 0 && len(windows) > 0:
					if repeat(windows[0].Free) == nil {
						windows = windows[1:]
					}
				case kind == 1:
					var keys []Key
					err := repeat(func(ctx context.Context) (err error) {
						keys, err = AllGatherKeys(ctx, e, mem)
						return err
					})
					if err == nil && len(keys) != len(es) {
						return fmt.Errorf("call %d: %d keys", i, len(keys))
					}
				case kind == 2:
					short, cancel := context.WithTimeout(ctx, time.Duration(own.IntN(400))*time.Microsecond) // deadline: some calls are given up
					if own.IntN(2) == 0 || e.Barrier(short) != nil {
						if err := e.Barrier(ctx); err != nil {
							cancel()
							return fmt.Errorf("call %d: %w", i, err)
						}
					}
					cancel()
				default:
					size := 8 * (1 + kinds.IntN(4))
					var w *Window
					err := repeat(func(ctx context.Context) (err error) {
						w, err = e.Window(ctx, size)
						return err
					})
					if err != nil {
						break
					}
					windows = append(windows, w)
					next := (e.Rank() + 1) % len(es)
					if err := e.Peer(next).Put(w.At(next, 0), w.Slice(0, 8)).Wait(ctx); err != nil {
						return fmt.Errorf("call %d: %w", i, err)
					}
				}
			}
			for _, w := range windows {
				if err := w.Free(ctx); err != nil {
					return err
				}
			}
			return mem.Close()
		})
		for r := range es {
			require.Equal(t, ends[0], ends[r], "rank %d, seed %d", r, seed)
		}
		words := 0
		if es[0].barrier.words != nil {
			words = 1
		}
		require.Equal(t, before+words, es[0].Stats().Regions, "seed %d", seed)
	})
}

// The outcome of a call about which the server was silent is known later.
func TestCollectiveInDoubt(t *testing.T) {
	es := simulate(t, 2, "sim")
	ctx := testutil.Context(t, testutil.Limit)
	before := es[0].Stats().Regions
	// The call as it is left when the server was silent.
	c := &collective{op: "window", about: 64}
	var err error
	c.mem, err = es[0].Alloc(64)
	require.NoError(t, err)
	c.x, err = es[0].job.Exchange("window", "rma/window", part(c.mem, nil))
	require.NoError(t, err)
	es[0].windows.Store(c)
	ws := make([]*Window, 2)
	together(t, es, func(ctx context.Context, e *Engine) (err error) {
		ws[e.Rank()], err = e.Window(ctx, 64)
		return err
	})
	require.Same(t, c.mem, ws[0].Region())
	require.NoError(t, es[1].Peer(0).PutBytes(ws[1].At(0, 0), []byte("kept")).Wait(ctx))
	require.Equal(t, "kept", string(ws[0].Bytes()[:4]))
	together(t, es, func(ctx context.Context, e *Engine) error { return ws[e.Rank()].Free(ctx) })
	require.Equal(t, before, es[0].Stats().Regions)
}

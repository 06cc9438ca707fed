package rma

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// Every rank accesses every part by rank and offset; parts may differ in size; Free waits
// for all ranks.
func TestWindow(t *testing.T) {
	onAll(t, 3, func(t *testing.T, es []*Engine) {
		before := make([]int, len(es))
		for r, e := range es {
			before[r] = e.Stats().Regions
		}
		together(t, es, func(ctx context.Context, e *Engine) error {
			me := e.Rank()
			w, err := e.Window(ctx, 4096*(me+1))
			if err != nil {
				return err
			}
			for to := range es {
				if n := w.Len(to); n < 4096*(to+1) {
					return fmt.Errorf("part %d has %d bytes", to, n)
				}
				binary.NativeEndian.PutUint64(w.Bytes()[8*to:], uint64(100*me+to+1))
				if err := e.Peer(to).Put(w.At(to, 1024+8*me), w.Slice(8*to, 8)).Wait(ctx); err != nil {
					return err
				}
				if _, err := e.Peer(to).FetchAdd(w.Key(to).At(2048), uint64(me+1)).Wait(ctx); err != nil {
					return err
				}
			}
			// The count shows that all ranks have written.
			v, err := e.WaitSignal(ctx, w.Slice(2048, 8), EQ, 6)
			if err != nil {
				return fmt.Errorf("count %d: %w", v, err)
			}
			for from := range es {
				if got := binary.NativeEndian.Uint64(w.Bytes()[1024+8*from:]); got != uint64(100*from+me+1) {
					return fmt.Errorf("rank %d found %d of rank %d", me, got, from)
				}
			}
			e.Peer((me+1)%3).Put(w.At((me+1)%3, 0), w.Slice(0, 8)).Forget()
			return w.Free(ctx)
		})
		for r, e := range es {
			require.Equal(t, before[r], e.Stats().Regions)
		}
	})
}

func TestWindowOf(t *testing.T) {
	es := simulate(t, 2, "sim")
	together(t, es, func(ctx context.Context, e *Engine) error {
		mem, err := e.Register(make([]byte, 100))
		if err != nil {
			return err
		}
		w, err := e.WindowOf(ctx, mem)
		if err != nil {
			return err
		}
		mem.Bytes()[1] = byte(10 + e.Rank())
		you := 1 - e.Rank()
		if err := e.Peer(you).Put(w.At(you, 50), w.Slice(1, 1)).Wait(ctx); err != nil {
			return err
		}
		if err := w.Free(ctx); err != nil {
			return err
		}
		if got := mem.Bytes()[50]; got != byte(10+you) {
			return fmt.Errorf("found %d", got)
		}
		return mem.Close()
	})
}

// Some or all parts may have no bytes: empty puts to them succeed, and others are refused.
func TestWindowOfNoBytes(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		together(t, es, func(ctx context.Context, e *Engine) error {
			none, err := e.Alloc(0)
			if err != nil {
				return err
			}
			for _, mine := range []int{0, 8 * e.Rank(), 8 * (1 - e.Rank())} {
				w, err := e.Window(ctx, mine)
				if err != nil {
					return err
				}
				if mine == 0 && len(w.Bytes()) > 0 {
					return fmt.Errorf("%d bytes", len(w.Bytes()))
				}
				for to := range es {
					n := w.Len(to)
					p := e.Peer(to)
					if err := p.Put(w.At(to, 0), none.Slice(0, 0)).Wait(ctx); err != nil {
						return fmt.Errorf("put of nothing to %d bytes: %w", n, err)
					}
					if err := p.PutBytes(w.At(to, n), []byte{1}).Wait(ctx); !errors.Is(err, ErrBounds) {
						return fmt.Errorf("behind %d bytes: %w", n, err)
					}
				}
				if err := writeWords(ctx, e, w); err != nil {
					return err
				}
				if err := w.Free(ctx); err != nil {
					return err
				}
			}
			w, err := e.WindowOf(ctx, none)
			if err != nil {
				return err
			}
			return errors.Join(w.Free(ctx), none.Close())
		})
	})
}

// writeWords writes to the first word of each part that has one.
func writeWords(ctx context.Context, e *Engine, w *Window) error {
	for to := range e.Size() {
		if w.Len(to) >= 8 {
			if err := e.Peer(to).PutBytes(w.At(to, 0), make([]byte, 8)).Wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// If one rank cannot allocate, no rank gets a window, and no memory is leaked.
func TestWindowFailsForAll(t *testing.T) {
	es := simulate(t, 3, "sim")
	before := es[0].Stats().Regions
	together(t, es, func(ctx context.Context, e *Engine) error {
		size := 4096
		if e.Rank() == 1 {
			size = -1
		}
		_, err := e.Window(ctx, size)
		if err == nil {
			return errors.New("no error")
		}
		_, err = e.WindowOf(ctx, nil)
		if !errors.Is(err, ErrForeign) {
			return err
		}
		return nil
	})
	require.Equal(t, before, es[0].Stats().Regions)
	ctx := testutil.Context(t, testutil.Limit)
	require.NoError(t, es[2].Close())
	_, err := es[2].Window(ctx, 10)
	require.Error(t, err)
}

func TestView(t *testing.T) {
	es := simulate(t, 1, "sim")
	mem, err := es[0].Alloc(4096)
	require.NoError(t, err)
	f, err := View[float64](mem.Slice(8, 80))
	require.NoError(t, err)
	require.Len(t, f, 10)
	f[1] = 2.5
	again, err := View[float64](mem.Slice(16, 8))
	require.NoError(t, err)
	require.Equal(t, []float64{2.5}, again)
	require.Equal(t, mem.Bytes()[8:88], Bytes(f))
	require.Empty(t, Bytes([]int32(nil)))
	for want, b := range map[error]Buffer{ErrAlign: mem.Slice(4, 8), ErrLength: mem.Slice(0, 9), ErrBounds: mem.Slice(4090, 8), ErrForeign: {}} {
		_, err := View[int64](b)
		require.ErrorIs(t, err, want)
	}
	require.NoError(t, mem.Close())
	_, err = View[int64](mem.Slice(0, 8))
	require.ErrorIs(t, err, ErrForeign)
}

// A window of keys that ranks exchanged themselves takes one key of a rank of the job for each part,
// as the memory of that rank: also a key that names no owner, but not one that names another rank.
func TestJoinWindow(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	es := open(t, 2, "shm")
	mems := make([]*Region, 2)
	keys := make([]Key, 2)
	for r, e := range es {
		var err error
		mems[r], err = e.Alloc(8)
		require.NoError(t, err)
		keys[r] = mems[r].Key()
	}
	w, err := JoinWindow(es[0], mems[0], []int{1, 0}, []Key{keys[1], keys[0]})
	require.NoError(t, err)
	require.NoError(t, w.Peer(0).PutBytes(w.At(0, 1), []byte{7}).Wait(ctx))
	require.NoError(t, w.Peer(1).PutBytes(w.At(1, 2), []byte{8}).Wait(ctx))
	require.EqualValues(t, 7, mems[1].Bytes()[1])
	require.EqualValues(t, 8, mems[0].Bytes()[2])
	require.NoError(t, w.Free(ctx))
	require.NoError(t, w.Free(ctx))
	require.True(t, mems[0].Belongs(es[0]))

	unowned := keys[1].value()
	unowned.Owner = 0
	w, err = JoinWindow(es[0], mems[0], []int{1}, []Key{newKey(unowned)})
	require.NoError(t, err)
	require.Equal(t, owner(1), w.Key(0).value().Owner)
	_, err = JoinWindow(es[0], mems[0], []int{1, 1}, []Key{keys[1], keys[0]})
	require.ErrorIs(t, err, ErrBadKey)
	require.ErrorContains(t, err, "key 1, of rank 1, belongs to memory of rank 0")

	for _, c := range []struct {
		ranks []int
		keys  []Key
	}{{[]int{0}, keys}, {[]int{0, 2}, keys}, {[]int{-1, 0}, keys}, {[]int{0, 1}, []Key{keys[0], {}}}} {
		_, err := JoinWindow(es[0], mems[0], c.ranks, c.keys)
		require.ErrorIs(t, err, ErrBadKey)
	}
	_, err = JoinWindow(es[0], mems[1], []int{0, 1}, keys)
	require.ErrorIs(t, err, ErrForeign)
	_, err = JoinWindow(es[0], nil, []int{0, 1}, keys)
	require.ErrorIs(t, err, ErrForeign)
}

// Keys are exchanged by all ranks or by none: a rank without memory makes the call fail for all,
// and does not make them wait.
func TestKeysFailForAll(t *testing.T) {
	onAll(t, 3, func(t *testing.T, es []*Engine) {
		closed, err := es[2].Alloc(8)
		require.NoError(t, err)
		require.NoError(t, closed.Close())
		mems, _ := share(t, es, 64)
		for _, mem := range []*Region{nil, mems[1], closed} {
			together(t, es, func(ctx context.Context, e *Engine) error {
				m := mems[e.Rank()]
				if e.Rank() == 2 {
					m = mem
				}
				_, err := AllGatherKeys(ctx, e, m)
				var pe *PeerError
				switch {
				case e.Rank() == 2 && !errors.Is(err, ErrForeign):
					return fmt.Errorf("the rank without memory got %w", err)
				case e.Rank() != 2 && (!errors.As(err, &pe) || pe.Rank != 2):
					return fmt.Errorf("rank %d got %w", e.Rank(), err)
				}
				return nil
			})
		}
	})
}

//go:build unix

package migrating

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/jobtest"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// both runs f on the two ranks of a job in this process.
func both(t *testing.T, f func(ctx context.Context, eng *rma.Engine, mem *rma.Region, keys []rma.Key) error) {
	t.Parallel()
	ctx := testutil.Context(t, time.Minute)
	g, ctx := errgroup.WithContext(ctx)
	for _, eng := range jobtest.Open(t, 2, "") {
		g.Go(func() error {
			mem, err := eng.Alloc(4096)
			if err != nil {
				return err
			}
			keys, err := rma.AllGatherKeys(ctx, eng, mem)
			if err == nil {
				err = f(ctx, eng, mem, keys)
			}
			if err == nil {
				err = eng.Barrier(ctx)
			}
			return err
		})
	}
	require.NoError(t, g.Wait())
}

func TestHalo(t *testing.T) {
	both(t, func(ctx context.Context, eng *rma.Engine, mem *rma.Region, keys []rma.Key) error {
		me, other := eng.Rank(), 1-eng.Rank()
		win, err := open(ctx, eng)
		if err != nil {
			return err
		}
		testutil.Fill(win.Bytes()[:100], uint64(me), 0)
		if err := halo(ctx, eng, win, other, 100, 2048); err != nil {
			return err
		}
		if err := testutil.Verify(win.Bytes()[2048:2148], uint64(other), 0); err != nil {
			return err
		}
		return win.Free(ctx)
	})
}

func TestSendrecvAndDraw(t *testing.T) {
	both(t, func(ctx context.Context, eng *rma.Engine, mem *rma.Region, keys []rma.Key) error {
		me, other := eng.Rank(), 1-eng.Rank()
		in := make([]byte, 1000)
		n, err := sendrecv(ctx, eng, other, 9, testutil.Payload(500+me, uint64(me), 0), in)
		if err != nil {
			return err
		}
		require.Equal(t, 500+other, n)
		if err := testutil.Verify(in[:n], uint64(other), 0); err != nil {
			return err
		}
		if _, err := draw(ctx, eng, keys[0].At(8)); err != nil {
			return err
		}
		if err := eng.Barrier(ctx); err != nil {
			return err
		}
		v, err := draw(ctx, eng, keys[0].At(8))
		require.GreaterOrEqual(t, v, uint64(2))
		return err
	})
}

func TestAdvertiseAndStore(t *testing.T) {
	both(t, func(ctx context.Context, eng *rma.Engine, mem *rma.Region, keys []rma.Key) error {
		if eng.Rank() == 0 {
			testutil.Fill(mem.Bytes()[:300], 5, 0)
			if err := store(ctx, eng, 1, mem.Slice(0, 300)); err != nil {
				return err
			}
			return eng.Barrier(ctx)
		}
		own := make([]byte, 512)
		region, err := advertise(ctx, eng, own, 0)
		if err != nil {
			return err
		}
		defer region.Close()
		if err := eng.Barrier(ctx); err != nil {
			return err
		}
		return testutil.Verify(own[:300], 5, 0)
	})
}

func TestLookupAndCall(t *testing.T) {
	both(t, func(ctx context.Context, eng *rma.Engine, mem *rma.Region, keys []rma.Key) error {
		if eng.Rank() == 1 {
			testutil.Fill(mem.Bytes()[3*rowSize:4*rowSize], 3, 0)
		}
		h, err := serve(eng, bytes.ToUpper) // both do, and one calls
		if err != nil {
			return err
		}
		defer h.Close()
		if eng.Rank() == 1 {
			err := eng.Barrier(ctx)
			if err == nil {
				err = eng.Barrier(ctx) // rank 0 has asked
			}
			return err
		}
		if err := eng.Barrier(ctx); err != nil {
			return err
		}
		row := make([]byte, rowSize)
		if err := lookup(ctx, eng, 1, &keys[1], 3, row); err != nil {
			return err
		}
		if err := testutil.Verify(row, 3, 0); err != nil {
			return err
		}
		buf := make([]byte, 100)
		for id := range byte(3) {
			n, err := call(ctx, eng, 1, id, []byte("question"), buf)
			if err != nil {
				return err
			}
			require.Equal(t, "QUESTION", string(buf[:n]))
		}
		return eng.Barrier(ctx)
	})
}

// total adds up on rank 0 what all have.
func TestTotal(t *testing.T) {
	both(t, func(ctx context.Context, eng *rma.Engine, mem *rma.Region, keys []rma.Key) error {
		sums, err := rma.View[float64](mem.Slice(64, 24))
		if err != nil {
			return err
		}
		if err := total(ctx, eng, keys[0].At(64), []float64{1, 2, float64(eng.Rank())}); err != nil {
			return err
		}
		if eng.Rank() == 0 {
			require.Equal(t, []float64{2, 4, 1}, sums)
		}
		return nil
	})
}

func TestColumn(t *testing.T) {
	both(t, func(ctx context.Context, eng *rma.Engine, mem *rma.Region, keys []rma.Key) error {
		const rows, columns = 5, 7
		me, other := eng.Rank(), 1-eng.Rank()
		mine, halo, flag := 0, 2048, 4088 // in the region
		at := func(base, row, col int) []byte { return mem.Bytes()[base+8*(row*columns+col):][:8] }
		for step := range 3 {
			for r := range rows {
				testutil.Fill(at(mine, r, 3), uint64(100*me+step), uint64(8*r))
			}
			err := column(ctx, eng, mem.Slice(mine+8*3, 8*columns*rows-8*3), keys[other].At(halo), keys[other].At(flag), other, rows, columns, uint64(step+1))
			if err == nil {
				err = await(ctx, eng, other, mem.Slice(flag, 8), uint64(step+1))
			}
			for r := 0; r < rows && err == nil; r++ {
				err = testutil.Verify(at(halo, r, 0), uint64(100*other+step), uint64(8*r))
			}
			if err == nil {
				err = eng.Barrier(ctx) // the halo may be overwritten
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func TestAwaitEndsWithTheNeighbour(t *testing.T) {
	t.Parallel()
	ctx := testutil.Context(t, testutil.Limit)
	engs := jobtest.Open(t, 2, "")
	mem, err := engs[0].Alloc(8)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- await(ctx, engs[0], 1, mem.Slice(0, 8), 1) }()
	require.NoError(t, engs[1].Close())
	require.ErrorIs(t, <-ended, rma.ErrPeerGone)
}

// A call that has failed leaves no receive behind.
func TestCallIsGivenUp(t *testing.T) {
	t.Parallel()
	ctx := testutil.Context(t, testutil.Limit)
	engs := jobtest.Open(t, 2, "")
	over, cancel := context.WithCancel(ctx)
	cancel()
	_, err := call(over, engs[0], 1, 7, nil, make([]byte, 8))
	require.ErrorIs(t, err, context.Canceled)
	late := engs[1].Peer(0).SendTag(answers|7, []byte("late"))
	n, err := engs[0].Peer(1).RecvTag(answers|7, make([]byte, 8)).Wait(ctx)
	require.NoError(t, err)
	require.Equal(t, 4, n)
	require.NoError(t, late.Wait(ctx))
}

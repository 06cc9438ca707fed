package rma

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// Operations posted beyond Config.Outstanding fail at once, without effect, and succeed
// when others have ended. Receives and flushes are not counted.
func TestOutstandingIsBounded(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		const most, size = 64, 20_000
		es := openWith(t, 2, fabric, func(c *Config) { c.Outstanding, c.Mode = most, ModeScatter })
		ctx := testutil.Context(t, testutil.Limit)
		p := es[0].Peer(1)
		var sends []Request
		for i := range most {
			sends = append(sends, p.SendTag(uint32(i), testutil.Payload(size, 1, uint64(i))))
		}
		require.Equal(t, most, es[0].Stats().Outstanding)
		for _, r := range []Request{p.SendTag(most, make([]byte, size)), p.SendTag(most, make([]byte, size))} {
			require.ErrorIs(t, r.Wait(ctx), ErrBusy)
		}
		own := es[1].Peer(0).SendTag(3, []byte("own budget"))
		got := p.RecvTag(3, make([]byte, 10))
		_, err := got.Wait(ctx)
		require.NoError(t, err)
		require.NoError(t, own.Wait(ctx))

		buf := make([]byte, size)
		for i := range most {
			_, err := es[1].Peer(0).RecvTag(uint32(i), buf).Wait(ctx)
			require.NoError(t, err)
			require.NoError(t, testutil.Verify(buf, 1, uint64(i)))
		}
		require.NoError(t, WaitAll(ctx, sends...))
		require.Zero(t, p.Stats().Outstanding)
		last := p.SendTag(most, make([]byte, size))
		_, err = es[1].Peer(0).RecvTag(most, buf).Wait(ctx)
		require.NoError(t, err)
		require.NoError(t, last.Wait(ctx))
	})
}

// Operations that the application leaves incomplete, up to Config.Outstanding, stop neither
// messages of libraries nor barriers.
func TestOutstandingExceptOwn(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		const most, size = 16, 20_000
		es := insist(openWith(t, 2, fabric, func(c *Config) { c.Outstanding, c.Mode = most, ModeScatter }))
		together(t, es, func(ctx context.Context, e *Engine) error {
			for range seldom + 2 { // then they run from rank to rank
				if err := e.Barrier(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		ctx := testutil.Context(t, testutil.Limit)
		p := es[0].Peer(1)
		var sends []Request
		for range most {
			sends = append(sends, p.SendTag(1, make([]byte, size)))
		}
		require.ErrorIs(t, p.SendTag(1, make([]byte, size)).Wait(ctx), ErrBusy)

		var own []Request
		for range 2 * most {
			own = append(own, SendSync(p, LibraryTags|1, nil))
		}
		b := p.Batch()
		b.Add(LibraryTags|1, nil)
		require.ErrorIs(t, b.Send().Wait(ctx), ErrBusy, "a batch is the application's")
		require.Equal(t, most, es[0].Stats().Outstanding)
		for range own {
			_, err := es[1].Peer(0).RecvTag(LibraryTags|1, nil).Wait(ctx)
			require.NoError(t, err)
		}
		require.NoError(t, WaitAll(ctx, own...))

		for range 3 {
			for range 3 {
				given, end := context.WithTimeout(ctx, time.Millisecond) // deadline: the call is given up
				require.ErrorIs(t, es[0].Barrier(given), context.DeadlineExceeded)
				end()
				require.LessOrEqual(t, len(es[0].barrier.signals), 1, "calls that continue a barrier add none")
			}
			together(t, es, func(ctx context.Context, e *Engine) error { return e.Barrier(ctx) })
		}
		require.Equal(t, most, es[0].Stats().Outstanding)
		for range most {
			_, err := es[1].Peer(0).RecvTag(1, make([]byte, size)).Wait(ctx)
			require.NoError(t, err)
		}
		require.NoError(t, WaitAll(ctx, sends...))
	})
}

package rma

import (
	"testing"

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

package rma

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// A received message makes its sender's earlier puts visible: complete ones and, for
// messages through the ring, also those only posted before.
func TestMessageBehindPut(t *testing.T) {
	behind := func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 1<<16)
		p, word := es[0].Peer(1), mems[1].Bytes()[1<<16-8:]
		src := mems[0].Bytes()
		buf := make([]byte, 8)
		for i := uint64(1); i <= 200; i++ {
			size := []int{8, 512, 20_000}[i%3] // the word is at the end
			binary.NativeEndian.PutUint64(src[size-8:], i)
			put := p.Put(keys[1].At(1<<16-size), mems[0].Slice(0, size))
			if i%2 == 0 {
				require.NoError(t, put.Wait(ctx))
			}
			recv := es[1].Peer(0).Recv(buf)
			sent := p.Send(buf[:0])
			_, err := recv.Wait(ctx)
			require.NoError(t, err)
			require.Equal(t, i, binary.NativeEndian.Uint64(word), "put of %d bytes, waited for: %v", size, i%2 == 0)
			if i%2 == 1 {
				require.NoError(t, put.Wait(ctx))
			}
			require.NoError(t, sent.Wait(ctx))
		}
	}
	t.Run("sim", func(t *testing.T) { t.Parallel(); behind(t, simulate(t, 2, "sim")) })
	onEach(t, func(t *testing.T, fabric string) { behind(t, open(t, 2, fabric)) })
}

// A put of several pieces posted before a message is visible when the message has been
// received, in whichever way the pieces were transferred.
func TestMessageBehindPieces(t *testing.T) {
	onNetworks(t, 2, []string{"sim"}, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 1<<16)
		p, dst, src := es[0].Peer(1), mems[1].Bytes(), mems[0].Bytes()
		buf := make([]byte, 30_000)
		for i := uint64(1); i <= 60; i++ {
			size := []int{8, 512, 20_000}[i%3] // the last does not travel through the ring
			for k := range 40 {
				binary.NativeEndian.PutUint64(src[8*k:], i)
			}
			put := p.PutStrided(keys[1].At(0), mems[0].Slice(0, 320), Shape2D(40, 8, 8, 128))
			recv := es[1].Peer(0).Recv(buf)
			sent := p.Send(src[1000:][:size])
			_, err := recv.Wait(ctx)
			require.NoError(t, err)
			if size <= 512 { // an announced message does not order puts
				for k := range 40 {
					require.Equal(t, i, testutil.Load64(dst[128*k:]), "piece %d, message of %d bytes", k, size)
				}
			}
			require.NoError(t, WaitAll(ctx, put, sent))
		}
	})
}

package rma

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/testutil"
)

// A batch of all sizes, in all modes, arrives whole and in order, by tag, from
// memory of any kind into memory of any kind; to oneself as well.
func TestBatch(t *testing.T) {
	sizes := []int{0, 8, 64, 64, 64, 300, 5000, 1 << 20, 70_000, 70_000, 1}
	onEach(t, func(t *testing.T, fabric string) {
		for _, mode := range []string{"auto", "eager", "gather", "scatter"} {
			t.Run(mode, func(t *testing.T) {
				ctx := testutil.Context(t, 60*time.Second)
				es := openWith(t, 2, fabric, func(c *Config) { c.Mode = Mode(mode) })
				total := 0
				for _, n := range sizes {
					total += n
				}
				src, err := es[0].Alloc(total)
				require.NoError(t, err)
				for _, to := range []int{1, 0} {
					dst, err := es[to].Alloc(total)
					require.NoError(t, err)
					b := es[0].Peer(to).Batch()
					for round := range 3 {
						b.Reset()
						at := 0
						for i, n := range sizes {
							mem := src.Bytes()[at:][:n]
							testutil.Fill(mem, uint64(i), uint64(round))
							if i%2 == round%2 {
								b.AddBuffer(uint32(i), src.Slice(at, n))
							} else {
								b.Add(uint32(i), append([]byte{}, mem...))
							}
							at += n
						}
						require.Equal(t, len(sizes), b.Len())
						sent := b.Send()
						at = 0
						for i, n := range sizes {
							buf := make([]byte, n)
							var r RecvRequest
							switch i % 4 {
							case 0:
								r = es[to].Peer(0).Recv(buf)
							case 1:
								r = es[to].Peer(0).RecvTag(uint32(i), buf)
							case 2:
								r = es[to].Peer(0).RecvBuffer(uint32(i), dst.Slice(at, n))
								buf = dst.Bytes()[at:][:n]
							case 3:
								into := make([]byte, n)
								r = es[to].Peer(0).RecvFunc(uint32(i), buf, func(_ uint32, parts [][]byte) {
									at := 0
									for _, p := range parts {
										at += copy(into[at:], p)
									}
								})
								buf = into
							}
							tag, got, err := r.WaitTag(ctx)
							require.NoError(t, err)
							require.Equal(t, n, got)
							require.EqualValues(t, i, tag)
							require.NoError(t, testutil.Verify(buf, uint64(i), uint64(round)), fmt.Sprint(i))
							at += n
						}
						require.NoError(t, sent.Wait(ctx))
					}
					if to == 1 {
						why, err := b.Explain()
						require.NoError(t, err)
						require.Contains(t, why, "gather")
					}
					empty := es[0].Peer(to).Batch().Send()
					require.NoError(t, empty.Wait(ctx))
				}
				require.EqualValues(t, 8, es[0].Stats().Batches)
			})
		}
	})
}

// What cannot be sent fails the batch, and a peer that goes fails it too.
func TestBatchErrors(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, 60*time.Second)
		es := open(t, 2, fabric)
		mem, err := es[0].Alloc(100)
		require.NoError(t, err)
		b := es[0].Peer(1).Batch()
		_, err = b.Explain()
		require.ErrorIs(t, err, ErrNotTalking)
		b.AddBuffer(0, mem.Slice(50, 51))
		require.ErrorIs(t, b.Send().Wait(ctx), ErrBounds)
		b.Reset()
		for range 10 {
			b.Add(0, make([]byte, 1<<20)) // nobody receives
		}
		r := b.Send()
		require.NoError(t, es[1].Close())
		require.ErrorIs(t, r.Wait(ctx), ErrPeerGone)
		_, _, _, err = (&Config{Mode: "fast"}).effective()
		require.ErrorContains(t, err, "auto, eager, gather or scatter")
	})
}

// What the message layer calls is no part of what applications may.
func TestEndsOfMessagesAreNotExported(t *testing.T) {
	require.NotImplements(t, (*message.Completer)(nil), new(Batch))
	require.NotImplements(t, (*message.Source)(nil), new(Receiving))
}

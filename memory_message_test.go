package rma

import (
	"encoding/binary"
	"fmt"
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

// A message does not overtake a put that is still to be posted, because its turn has not come: behind a
// long one in turns, behind an accumulate, a fence, or a get on another rail. Nor does one to this rank itself.
func TestMessageBehindWaitingPuts(t *testing.T) {
	const size, run = 2 << 20, 4096
	try := func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 2*size+8)
		words := make([]float64, 1000)
		last := func(n int) int { return 2*run*(n/run) - run - 8 } // the last word of n bytes in runs, of twice the stride
		for to := range 2 {
			p, src, dst, k := es[0].Peer(to), mems[0].Slice(0, size), mems[to].Bytes()[size:], keys[to]
			at := func(off int) Remote { return k.At(size + off) }
			strided := func(n int) Request {
				return p.PutStrided(at(0), src.region.Slice(0, n), Shape2D(n/run, run, run, 2*run))
			}
			for name, puts := range map[string]func() (reqs []Request, word int){
				"in turns": func() ([]Request, int) { return []Request{strided(size / 2)}, last(size / 2) },
				"behind an accumulate": func() ([]Request, int) {
					return []Request{Accumulate(p, at(size-8000), Sum, words), p.Put(at(0), src.region.Slice(0, 8))}, 0
				},
				"behind a fence": func() ([]Request, int) {
					a := Accumulate(p, at(size-8000), Sum, words)
					p.Fence()
					return []Request{a, p.Put(at(0), src.region.Slice(0, 8))}, 0
				},
				"behind a get": func() ([]Request, int) {
					g := p.Get(src.region.Slice(2*size, 8), k.At(0))
					return []Request{g, p.Put(at(0), src.region.Slice(0, size))}, size - 8
				},
			} {
				t.Run(fmt.Sprintf("%s %d", name, to), func(t *testing.T) {
					for i := byte(1); i <= 8; i++ {
						for j := range src.region.Bytes()[:size] {
							src.region.Bytes()[j] = i
						}
						want := binary.NativeEndian.Uint64(src.region.Bytes())
						recv := es[to].Peer(0).RecvTag(7, make([]byte, 8))
						reqs, word := puts()
						send := p.SendTag(7, make([]byte, 8))
						_, err := recv.Wait(ctx)
						got := testutil.Load64(dst[word:])
						require.NoError(t, err)
						require.Equal(t, want, got, "round %d", i)
						require.NoError(t, WaitAll(ctx, append(reqs, send)...))
					}
				})
			}
			t.Run(fmt.Sprintf("batch %d", to), func(t *testing.T) {
				b := p.Batch()
				for i := range 20 {
					b.Put(at(50_000*i), src.region.Slice(50_000*i, 50_000))
				}
				b.Add(7, make([]byte, 8))
				for i := byte(1); i <= 8; i++ {
					for j := range src.region.Bytes()[:size] {
						src.region.Bytes()[j] = 100 + i
					}
					recv := es[to].Peer(0).RecvTag(7, make([]byte, 8))
					sent := b.Send()
					_, err := recv.Wait(ctx)
					got := testutil.Load64(dst[50_000*20-8:])
					require.NoError(t, err)
					require.Equal(t, binary.NativeEndian.Uint64(src.region.Bytes()), got)
					require.NoError(t, sent.Wait(ctx))
				}
			})
		}
	}
	onNetworks(t, 2, []string{"sim"}, try)
	for device, list := range map[string]string{"sim": "sim", "tcp": "127.0.0.2, 127.0.0.3"} {
		t.Run(device+" rails", func(t *testing.T) {
			t.Parallel()
			es := rails(t, device, list)
			connectRails(t, es)
			try(t, es)
		})
	}
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

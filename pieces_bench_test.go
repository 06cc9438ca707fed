package rma

import (
	"context"
	"testing"

	"github.com/Mellanox/rdmamap"
	"github.com/stretchr/testify/require"
)

// BenchmarkPieces moves 64 pieces of 64 bytes from and to scattered places, each way: one
// operation after the other, posted without waiting, and as one operation of all.
func BenchmarkPieces(b *testing.B) {
	const n, size, stride = 64, 64, 4096
	for _, fabric := range []string{"shm", "tcp", "ibv"} {
		if fabric == "ibv" && len(rdmamap.GetRdmaDeviceList()) == 0 {
			continue
		}
		for _, way := range []Pieces{PiecesChain, PiecesGroup, PiecesAuto} {
			es := openWith(b, 2, fabric, func(c *Config) { c.Pieces = way })
			ctx := context.Background()
			mems, keys := share(b, es, n*stride)
			p := es[0].Peer(1)
			var dst []Span
			var src []Buffer
			for i := range n {
				at := i * 37 % n
				dst = append(dst, keys[1].Slice(at*stride, size))
				src = append(src, mems[0].Slice(i*stride, size))
			}
			run := func(what string, f func() error) {
				b.Run(fabric+"/"+string(way)+"/"+what, func(b *testing.B) {
					for b.Loop() {
						require.NoError(b, f())
					}
				})
			}
			if way == PiecesChain {
				run("alone", func() error {
					for i := range dst {
						if err := p.Put(dst[i].at, src[i]).Wait(ctx); err != nil {
							return err
						}
					}
					return nil
				})
				reqs := make([]Request, n)
				run("posted", func() error {
					for i := range dst {
						reqs[i] = p.Put(dst[i].at, src[i])
					}
					return WaitAll(ctx, reqs...)
				})
			}
			run("putv", func() error { return p.PutV(dst, src).Wait(ctx) })
			run("getv", func() error { return p.GetV(src, dst).Wait(ctx) })
		}
	}
}

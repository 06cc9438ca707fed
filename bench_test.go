package rma

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// One rank waits for each operation; both ranks are in this process. rmabench measures the
// links alone.
func BenchmarkWait(b *testing.B) {
	for _, fabric := range []string{"shm", "tcp"} {
		for _, size := range []int{8, 4096} {
			for what, f := range map[string]func(p *Peer, to Key, from *Region) Request{
				"put":       func(p *Peer, to Key, from *Region) Request { return p.Put(to.At(0), from.Slice(0, size)) },
				"put-bytes": func(p *Peer, to Key, from *Region) Request { return p.PutBytes(to.At(0), from.Bytes()[:size]) },
				"get-bytes": func(p *Peer, to Key, from *Region) Request { return p.GetBytes(from.Bytes()[:size], to.At(0)) },
				"signal": func(p *Peer, to Key, from *Region) Request {
					return p.PutSignal(to.At(0), from.Slice(0, size), to.At(8192), SignalSet, 1)
				},
			} {
				b.Run(fmt.Sprintf("%s/%s/%d", what, fabric, size), func(b *testing.B) {
					es := open(b, 2, fabric)
					mems, keys := share(b, es, 1<<16)
					p, ctx := es[0].Peer(1), context.Background()
					b.SetBytes(int64(size))
					b.ReportAllocs()
					for b.Loop() {
						if err := f(p, keys[1], mems[0]).Wait(ctx); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

// Atomics on one rank's memory by another, and for comparison one of them as a program
// would implement it.
func BenchmarkAtomics(b *testing.B) {
	es := open(b, 2, "shm")
	_, keys := share(b, es, 1<<16)
	p, ctx, at := es[0].Peer(1), context.Background(), keys[1].At(0)
	one := []uint64{1}
	for what, f := range map[string]func() error{
		"add":        func() error { _, err := p.FetchAdd(at, 1).Wait(ctx); return err },
		"xor":        func() error { _, err := p.FetchXor(at, 1).Wait(ctx); return err },
		"swap":       func() error { _, err := p.Swap(at, 1).Wait(ctx); return err },
		"add32":      func() error { _, err := p.FetchAdd32(at, 1).Wait(ctx); return err },
		"accumulate": func() error { return Accumulate(p, at, Sum, one).Wait(ctx) },
		"xor by hand": func() error {
			for old := uint64(0); ; {
				v, err := p.CompareSwap(at, old, old^1).Wait(ctx)
				if err != nil || v == old {
					return err
				}
				old = v
			}
		},
	} {
		b.Run(what, func(b *testing.B) {
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Accumulates, compared with a program's get, add and put, which are not atomic.
//
//	go test -run '^$' -bench AccumulateBeside -count 5 .
func BenchmarkAccumulateBeside(b *testing.B) {
	const n = 1 << 17
	for _, fabric := range []string{"shm", "tcp"} {
		es := open(b, 2, fabric)
		mems, keys := share(b, es, 8*n)
		p, ctx, there := es[0].Peer(1), context.Background(), keys[1].At(0)
		src := make([]float64, n)
		local, err := View[float64](mems[0].Slice(0, 8*n))
		require.NoError(b, err)
		run := func(what string, f func() error) {
			b.Run(fabric+"/"+what, func(b *testing.B) {
				b.SetBytes(8 * n)
				for b.Loop() {
					require.NoError(b, f())
				}
			})
		}
		run("accumulate", func() error { return Accumulate(p, there, Sum, src).Wait(ctx) })
		run("exclusive", func() error { return Accumulate(p, there, Sum|Exclusive, src).Wait(ctx) })
		run("by hand", func() error {
			if err := p.Get(mems[0].Slice(0, 8*n), there).Wait(ctx); err != nil {
				return err
			}
			for i, x := range src {
				local[i] += x
			}
			return p.Put(there, mems[0].Slice(0, 8*n)).Wait(ctx)
		})
	}
}

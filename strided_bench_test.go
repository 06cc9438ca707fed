package rma

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// Shapes, compared with a program's own way: gather the runs in a buffer and put that, or
// get the whole span of the runs and extract them. In this way, the runs of a put have not
// reached their final places at the target.
//
//	go test -run '^$' -bench Shapes -count 5 .
func BenchmarkShapes(b *testing.B) {
	const order = 256
	transpose := Shape{Run: 8, Dims: []Dim{{order, 8 * order, 8}, {order, 8, 8 * order}}}
	for _, fabric := range []string{"shm", "tcp"} {
		es := open(b, 2, fabric)
		mems, keys := share(b, es, 1<<20)
		p, ctx := es[0].Peer(1), context.Background()
		all, there := mems[0].Bytes(), &keys[1]
		matrix, packed := mems[0].Slice(0, 8*order*order), mems[0].Slice(1<<19, 8*order*order)
		run := func(what string, bytes int64, f func() error) {
			b.Run(what+"/"+fabric, func(b *testing.B) {
				b.SetBytes(bytes)
				b.ReportAllocs()
				for b.Loop() {
					require.NoError(b, f())
				}
			})
		}
		run("transpose/shape", 8*order*order, func() error { return p.PutStrided(there.At(0), matrix, transpose).Wait(ctx) })
		run("transpose/by hand", 8*order*order, func() error {
			from, to := all[:8*order*order], all[1<<19:]
			for i := range order {
				for j := range order {
					binary.NativeEndian.PutUint64(to[8*(j*order+i):], binary.NativeEndian.Uint64(from[8*(i*order+j):]))
				}
			}
			return p.Put(there.At(0), packed).Wait(ctx)
		})
		const runs, apart = 4096, 24
		column := Shape2D(runs, 8, 8, apart)
		run("column/shape", 8*runs, func() error { return p.GetStrided(mems[0].Slice(0, 8*runs), there.At(0), column).Wait(ctx) })
		run("column/by hand", 8*runs, func() error {
			if err := p.Get(mems[0].Slice(1<<19, apart*runs), there.At(0)).Wait(ctx); err != nil {
				return err
			}
			from := all[1<<19:]
			for i := range runs {
				binary.NativeEndian.PutUint64(all[8*i:], binary.NativeEndian.Uint64(from[apart*i:]))
			}
			return nil
		})
	}
}

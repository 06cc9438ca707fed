package rma

import (
	"context"
	"fmt"
	"testing"
)

// One rank waits for each operation; both ranks live in this process. What a
// link can do by itself is measured by rmabench.
func BenchmarkWait(b *testing.B) {
	for _, fabric := range []string{"shm", "tcp"} {
		for _, size := range []int{8, 4096} {
			b.Run(fmt.Sprintf("put/%s/%d", fabric, size), func(b *testing.B) {
				es := open(b, 2, fabric)
				mems, keys := share(b, es, 1<<16)
				p, ctx := es[0].Peer(1), context.Background()
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if err := p.Put(keys[1].At(0), mems[0].Slice(0, size)).Wait(ctx); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

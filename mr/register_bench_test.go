package mr

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/testutil"
)

// BenchmarkRegister is what the cache saves: registering and withdrawing.
func BenchmarkRegister(b *testing.B) {
	for _, link := range []string{"tcp", "shm", "ibv"} {
		for _, n := range []int{4 << 10, 64 << 10, 1 << 20, 16 << 20} {
			b.Run(fmt.Sprintf("%s/%dK", link, n>>10), func(b *testing.B) {
				d, _ := open(b, link)
				mem := testutil.Scratch(b, n)
				testutil.Fill(mem, 1, 0) // pages there already
				for b.Loop() {
					r, err := d.Register(mem, fabric.AccessAll)
					require.NoError(b, err)
					require.NoError(b, r.Close())
				}
			})
		}
	}
}

// BenchmarkAlloc is what memory costs that is allocated and freed beside other registrations.
func BenchmarkAlloc(b *testing.B) {
	for _, n := range []int{0, 1000, 10000} {
		b.Run(fmt.Sprintf("beside/%d", n), func(b *testing.B) {
			d, _ := open(b, "tcp")
			mem := testutil.Scratch(b, offheap.PageSize)
			for range n {
				_, err := d.Register(mem, fabric.AccessAll)
				require.NoError(b, err)
			}
			for b.Loop() {
				r, err := d.Alloc(offheap.PageSize, fabric.AccessAll, offheap.Scratch)
				require.NoError(b, err)
				require.NoError(b, r.Close())
			}
		})
	}
}

package rma

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// BenchmarkRails times single large puts and gets over tcp, with the rails and the address
// of the environment (RMA_RAILS, RMA_TCP_BIND).
func BenchmarkRails(b *testing.B) {
	const most = 64 << 20
	es := openWith(b, 2, "tcp", func(*Config) {})
	mems, keys := share(b, es, most)
	p, ctx := es[0].Peer(1), testutil.Context(b, testutil.Limit)
	for _, op := range []string{"put", "get"} {
		for n := 4 << 10; n <= most; n *= 4 {
			b.Run(fmt.Sprintf("%s/%dK", op, n>>10), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					move := func() Request { return p.Put(keys[1].At(0), mems[0].Slice(0, n)) }
					if op == "get" {
						move = func() Request { return p.Get(mems[0].Slice(0, n), keys[1].At(0)) }
					}
					r := move()
					require.NoError(b, r.Wait(ctx))
				}
			})
		}
	}
}

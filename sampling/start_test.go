package sampling

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
)

// What a saved profile costs a start, over connected endpoints: load, set up,
// recheck, part. ns/op is both sides' together, since they run side by side.
func BenchmarkCachedStart(b *testing.B) {
	for name, open := range realLinks {
		b.Run(name, func(b *testing.B) {
			la, lb := open(b)
			ea, eb := join(b, la, lb, fabric.EndpointOptions{})
			store := &Store{Dir: b.TempDir()}
			start := func(m Mode) Result {
				ss := make([]*Session, 2)
				for i, l := range []fabric.Link{la, lb} {
					var err error
					ss[i], err = Open(l, []fabric.Endpoint{ea, eb}[i], Options{
						First: i == 0, EP: epID, Mode: m, Store: store, Key: Key{Class: SameHost}, StepTimeout: 30 * time.Second,
					})
					require.NoError(b, err)
				}
				require.NoError(b, ss[0].Connect(ss[1].Setup()))
				require.NoError(b, ss[1].Connect(ss[0].Setup()))
				oa, ob := both(context.Background(), ss[0], ss[1])
				require.NoError(b, oa.err)
				require.NoError(b, ob.err)
				for _, s := range ss {
					require.NoError(b, s.Close())
				}
				return oa.r
			}
			start(Force)
			n, hits := 0, 0
			for b.Loop() {
				n++
				if start(Cached).Source == FromProfile {
					hits++
				}
			}
			b.ReportMetric(float64(hits)/float64(n), "hits")
			require.NoError(b, ea.Close())
			require.NoError(b, eb.Close())
		})
	}
}

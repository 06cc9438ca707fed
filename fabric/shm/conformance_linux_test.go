package shm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/fabrictest"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// ways forces each way to the memory in turn.
var ways = map[string]Options{
	"mapped":  {},
	"bulk":    {StringFrom: 64, StreamFrom: 4096},
	"copied":  {DisableCMA: true},
	"cma":     {DisableSegments: true},
	"by-peer": {DisableCMA: true, DisableSegments: true},
}

// openPair opens two links in this process; they are closed with the test.
func openPair(tb testing.TB, o Options) (a, b *link) {
	tb.Helper()
	a, err := open(o)
	require.NoError(tb, err)
	b, err = open(o)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		require.NoError(tb, a.Close())
		require.NoError(tb, b.Close())
	})
	return a, b
}

func TestConformance(t *testing.T) {
	for name, o := range ways {
		t.Run(name, func(t *testing.T) {
			fabrictest.Run(t, fabrictest.Factory{
				Open:     func(tb testing.TB) (fabric.Link, fabric.Link) { return openPair(tb, o) },
				IdleDown: true,
			})
		})
	}
}

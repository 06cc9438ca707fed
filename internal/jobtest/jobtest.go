// Package jobtest opens jobs whose ranks are all in the test's process.
//
//	es := jobtest.Open(t, 2, "shm")
//
// For tests only; tests of packages above the root package may import it. It imports the
// root package, internal/testutil and internal/wireup.
package jobtest

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup"
)

// Open opens the engines of a job of n ranks over a fabric, as in Config.Fabric, without
// sampling, and closes them when the test ends. The functions change adapt the configuration
// of each rank, which its Job.Rank names; they are called concurrently.
func Open(tb testing.TB, n int, fabric string, change ...func(*rma.Config)) []*rma.Engine {
	tb.Helper()
	token := []byte("the token of a test")
	ln, err := net.Listen("unix", filepath.Join(tb.TempDir(), "s"))
	require.NoError(tb, err)
	srv, err := wireup.Serve(context.Background(), ln, wireup.ServerConfig{Size: n, Token: token})
	require.NoError(tb, err)
	tb.Cleanup(func() { srv.Close() })
	es := make([]*rma.Engine, n)
	var g errgroup.Group
	for r := range es {
		g.Go(func() error {
			c := &rma.Config{
				Job:    &rma.Job{Rank: r, Size: n, Root: "unix:" + ln.Addr().String(), Token: token},
				Fabric: rma.Fabric(fabric), SetupTimeout: testutil.Limit, Sampling: "off",
			}
			for _, f := range change {
				f(c)
			}
			e, err := rma.Open(context.Background(), c)
			if err == nil {
				es[r] = e
				tb.Cleanup(func() { require.NoError(tb, e.Close()) })
			}
			return err
		})
	}
	require.NoError(tb, g.Wait())
	return es
}

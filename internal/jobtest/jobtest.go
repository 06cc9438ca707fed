// Package jobtest opens jobs whose ranks are all, or some, in the test's process.
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

// Token is the secret of the jobs.
var Token = []byte("the token of a test")

// Serve serves a job of n ranks, some of which may be processes, until the test ends, and returns
// its Job.Root.
func Serve(tb testing.TB, n int) (root string) {
	tb.Helper()
	ln, err := net.Listen("unix", filepath.Join(tb.TempDir(), "s"))
	require.NoError(tb, err)
	srv, err := wireup.Serve(context.Background(), ln, wireup.ServerConfig{Size: n, Token: Token})
	require.NoError(tb, err)
	tb.Cleanup(func() { srv.Close() })
	return "unix:" + ln.Addr().String()
}

// Open opens the engines of a job of n ranks over a fabric, as in Config.Fabric, without
// sampling, and closes them when the test ends. The functions change adapt the configuration
// of each rank, which its Job.Rank names; they are called concurrently.
func Open(tb testing.TB, n int, fabric string, change ...func(*rma.Config)) []*rma.Engine {
	tb.Helper()
	root := Serve(tb, n)
	es := make([]*rma.Engine, n)
	var g errgroup.Group
	for r := range es {
		g.Go(func() error {
			c := &rma.Config{
				Job:    &rma.Job{Rank: r, Size: n, Root: root, Token: Token},
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

// Busy posts messages from one rank to another, until Config.Outstanding refuses the next one. They
// stay incomplete until end, which receives them, is called.
func Busy(tb testing.TB, from, to *rma.Engine) (end func()) {
	tb.Helper()
	return BusyWith(tb, from, to, 0x62757379)
}

// BusyWith is Busy with messages of that tag.
func BusyWith(tb testing.TB, from, to *rma.Engine, tag uint32) (end func()) {
	tb.Helper()
	ctx := testutil.Context(tb, testutil.Limit)
	p := from.Peer(to.Rank())
	var sends []rma.Request
	for {
		r := rma.SendSync(p, tag, nil)
		if r.Done() {
			require.ErrorIs(tb, r.Wait(ctx), rma.ErrBusy)
			break
		}
		sends = append(sends, r)
	}
	return func() {
		tb.Helper()
		for range sends {
			_, err := to.Peer(from.Rank()).RecvTag(tag, nil).Wait(ctx)
			require.NoError(tb, err)
		}
		require.NoError(tb, rma.WaitAll(ctx, sends...))
	}
}

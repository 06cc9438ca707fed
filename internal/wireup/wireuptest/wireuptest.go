// Package wireuptest starts jobs whose ranks are all in the test's process.
//
//	es := wireuptest.Open(t, 2, func(rank int, root string, token []byte) (*rma.Engine, error) {
//		return rma.Open(ctx, &rma.Config{Job: &rma.Job{Rank: rank, Size: 2, Root: root, Token: token}})
//	})
//
// It imports internal/wireup.
package wireuptest

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/wireup"
)

// Serve starts the server of a job of n ranks, until the test ends.
func Serve(tb testing.TB, n int) (root string, token []byte) {
	tb.Helper()
	token = []byte("the token of a test")
	ln, err := net.Listen("unix", filepath.Join(tb.TempDir(), "s"))
	require.NoError(tb, err)
	srv, err := wireup.Serve(context.Background(), ln, wireup.ServerConfig{Size: n, Token: token})
	require.NoError(tb, err)
	tb.Cleanup(func() { srv.Close() })
	return "unix:" + ln.Addr().String(), token
}

// Open calls open for each of the n ranks of a job, all at once, and closes what it returned
// when the test ends.
func Open[E interface{ Close() error }](tb testing.TB, n int, open func(rank int, root string, token []byte) (E, error)) []E {
	tb.Helper()
	root, token := Serve(tb, n)
	es := make([]E, n)
	var g errgroup.Group
	for r := range es {
		g.Go(func() error {
			e, err := open(r, root, token)
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

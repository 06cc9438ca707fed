package locks

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup"
)

func TestMain(m *testing.M) { testutil.Main(m) }

const patience = testutil.Limit

// onEach runs f over every link; the one that needs a device where there is one.
func onEach(t *testing.T, f func(t *testing.T, fabric string)) {
	for _, name := range []string{"shm", "tcp"} {
		t.Run(name, func(t *testing.T) { t.Parallel(); f(t, name) })
	}
	t.Run("ibv", func(t *testing.T) {
		testutil.RequireRDMA(t)
		f(t, "ibv")
	})
}

// job opens the engines of a job of n ranks in this process.
func job(t testing.TB, n int, fabric string) []*rma.Engine {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	srv, err := wireup.Serve(context.Background(), ln, wireup.ServerConfig{Size: n, Token: []byte("t")})
	require.NoError(t, err)
	es := make([]*rma.Engine, n)
	t.Cleanup(func() {
		for _, e := range es {
			if e != nil {
				require.NoError(t, e.Close())
			}
		}
		srv.Close()
	})
	var g errgroup.Group
	for r := range es {
		g.Go(func() (err error) {
			es[r], err = rma.Open(context.Background(), &rma.Config{
				Job:    &rma.Job{Rank: r, Size: n, Root: "unix:" + ln.Addr().String(), Token: []byte("t")},
				Fabric: rma.Fabric(fabric), SetupTimeout: 60 * time.Second, Sampling: "off",
			})
			return err
		})
	}
	require.NoError(t, g.Wait())
	return es
}

// serve returns the locks of every rank.
func serve(t testing.TB, es []*rma.Engine) []*Locks {
	t.Helper()
	ls := make([]*Locks, len(es))
	for r, e := range es {
		var err error
		ls[r], err = New(e)
		require.NoError(t, err)
	}
	return ls
}

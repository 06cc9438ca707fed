package locks

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup/wireuptest"
)

func TestMain(m *testing.M) { testutil.Main(m) }

const patience = testutil.Limit

// onEach runs f over every link; over ibv if there is a device.
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
	return wireuptest.Open(t, n, func(rank int, root string, token []byte) (*rma.Engine, error) {
		return rma.Open(context.Background(), &rma.Config{
			Job:    &rma.Job{Rank: rank, Size: n, Root: root, Token: token},
			Fabric: rma.Fabric(fabric), SetupTimeout: 60 * time.Second, Sampling: "off",
		})
	})
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

package rmanet

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/jobtest"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// job opens a job that gives up peers soon.
func job(t testing.TB, n int, fabric string, change ...func(*rma.Config)) []*rma.Engine {
	t.Helper()
	return jobtest.Open(t, n, fabric, slices.Insert(change, 0, func(c *rma.Config) { c.PeerTimeout = 2 * time.Second })...)
}

// connect returns the ends of a new connection from rank a to rank b.
func connect(t testing.TB, es []*rma.Engine, a, b int) (dialled, accepted *Conn) {
	t.Helper()
	l, err := Of(es[b]).Listen("pair")
	require.NoError(t, err)
	defer l.Close()
	c, err := Of(es[a]).Dial(testutil.Context(t, 30*time.Second), Addr{b, "pair"}.String())
	require.NoError(t, err)
	d, err := l.Accept()
	require.NoError(t, err)
	return c.(*Conn), d.(*Conn)
}

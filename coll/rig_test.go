package coll

import (
	"testing"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/jobtest"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// job opens the engines of a job of n ranks in this process.
func job(t testing.TB, n int, fabric string) []*rma.Engine {
	t.Helper()
	return jobtest.Open(t, n, fabric)
}

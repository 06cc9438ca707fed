package locks

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

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

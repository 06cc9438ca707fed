// Package nastest runs the benchmarks of examples/nas in tests.
//
// It imports examples/nas/internal/nas, internal/jobtest and internal/testutil.
package nastest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/examples/nas/internal/nas"
	"github.com/seed33544411/rma/internal/jobtest"
	"github.com/seed33544411/rma/internal/testutil"
)

// Run solves class S with n ranks in this process and returns the report of rank 0.
func Run(t *testing.T, k nas.Kernel, n int, link string) (report string, err error) {
	t.Helper()
	es := jobtest.Open(t, n, link)
	ctx := testutil.Context(t, testutil.Limit)
	out := make([]bytes.Buffer, n)
	var g errgroup.Group
	for r, e := range es {
		g.Go(func() error { return k.Solve(ctx, e, "S", &out[r]) })
	}
	err = g.Wait()
	for r := 1; r < n; r++ {
		require.Empty(t, out[r].String(), "only rank 0 reports")
	}
	return out[0].String(), err
}

// Verify requires that class S is verified on so many ranks, over shm and, for the last two
// numbers, over tcp. Under the race detector, which makes the computation many times slower, only
// the second number runs.
func Verify(t *testing.T, k nas.Kernel, ranks ...int) {
	if testutil.Race {
		ranks = ranks[1:2]
	}
	for link, ranks := range map[string][]int{"shm": ranks, "tcp": ranks[max(len(ranks)-2, 0):]} {
		for _, n := range ranks {
			t.Run(fmt.Sprintf("%s %d", link, n), func(t *testing.T) {
				report, err := Run(t, k, n, link)
				require.NoError(t, err, report)
				require.Contains(t, report, "Verification    =               SUCCESSFUL\n")
				require.Contains(t, report, fmt.Sprintf(" Total processes = %24d\n Link            = %24s\n", n, link))
			})
		}
	}
}

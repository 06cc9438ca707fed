package collective

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/coll"
	"github.com/seed33544411/rma/internal/jobtest"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// teams calls f for the team of each of p ranks.
func teams(t *testing.T, p int, f func(ctx context.Context, team *coll.Team) error) {
	t.Helper()
	ctx := testutil.Context(t, testutil.Limit)
	var g errgroup.Group
	for _, eng := range jobtest.Open(t, p, "shm") {
		g.Go(func() error {
			team, err := coll.World(eng)
			if err != nil {
				return err
			}
			return f(ctx, team)
		})
	}
	require.NoError(t, g.Wait())
}

// All forms of every operation compute what is expected, and a result that is not there is found
// at each rank that receives one.
func TestKernels(t *testing.T) {
	t.Parallel()
	teams(t, 3, func(ctx context.Context, team *coll.Team) error {
		for _, op := range Ops {
			size := 40
			if op == "barrier" {
				size = 0
			}
			k := newKernel(ctx, team, op, size)
			if err := k.check(); err != nil {
				return err
			}
			blocking := k.call
			for _, form := range Calls[1:] {
				end, err := k.use(ctx, form)
				if err := errors.Join(err, k.check(), end()); err != nil {
					return fmt.Errorf("%s %s: %w", form, op, err)
				}
			}
			k.call = func() error { return nil }
			receives := op != "barrier" && !(team.Rank() != 0 && (op == "reduce" || op == "gather" || op == "gatherv")) &&
				!(team.Rank() == 0 && (op == "exscan" || op == "bcast"))
			if err := k.check(); receives {
				require.ErrorIs(t, err, ErrWrong, "%s at rank %d", op, team.Rank())
			} else {
				require.NoError(t, err, "%s at rank %d", op, team.Rank())
			}
			if err := blocking(); err != nil {
				return err
			}
		}
		return nil
	})
}

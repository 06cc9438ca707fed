//go:build unix

package main

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/launch/launchtest"
)

func TestMain(m *testing.M) {
	launchtest.Main(m, map[string]launchtest.Role{
		"even":  func(ctx context.Context) error { return run(ctx, options{values: 3000, buckets: 1000}) },
		"skew":  func(ctx context.Context) error { return run(ctx, options{values: 1000, buckets: 37, skew: true}) },
		"few":   func(ctx context.Context) error { return run(ctx, options{values: 1, buckets: 4}) },
		"small": func(ctx context.Context) error { return run(ctx, options{values: 1, buckets: 1}) },
		"huge":  func(ctx context.Context) error { return run(ctx, options{values: math.MaxInt, buckets: 2}) },
	})
}

// Both ways count as one process does.
func TestCounts(t *testing.T) {
	for _, c := range []struct {
		n      int
		fabric string
		role   string
	}{{1, "shm", "even"}, {2, "shm", "skew"}, {3, "shm", "even"}, {2, "tcp", "even"}, {4, "tcp", "skew"}, {4, "shm", "few"}, {2, "ibv", "even"}} {
		t.Run(fmt.Sprintf("%d ranks %s %s", c.n, c.fabric, c.role), func(t *testing.T) {
			launchtest.Parallel(t, c.fabric)
			out := launchtest.Job{N: c.n, Role: c.role, Fabric: c.fabric}.Output(t)
			require.Contains(t, out, "[0] both equal to a serial count\n")
			require.Contains(t, out, "buckets over "+c.fabric)
		})
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	for role, says := range map[string]string{"small": "one bucket for each of 2 ranks", "huge": "and at most 1073741824"} {
		out, _, err := launchtest.Job{N: 2, Role: role, Fabric: "shm"}.Run(t)
		require.Error(t, err)
		require.Contains(t, out, says)
	}
}

// Every bucket lies with the rank whose share it is.
func TestOwners(t *testing.T) {
	for ranks := 1; ranks <= 9; ranks++ {
		for _, buckets := range []int{ranks, ranks + 1, 37, 64} {
			next := 0
			for r := range ranks {
				from, to := owned(r, buckets, ranks)
				require.Equal(t, next, from)
				for b := from; b < to; b++ {
					require.Equal(t, r, owner(b, buckets, ranks), "bucket %d of %d, %d ranks", b, buckets, ranks)
				}
				next = to
			}
			require.Equal(t, buckets, next)
		}
	}
}

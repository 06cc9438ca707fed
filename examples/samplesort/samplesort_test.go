//go:build unix

package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/launch/launchtest"
)

func TestMain(m *testing.M) {
	roles := map[string]launchtest.Role{}
	for _, kind := range []string{"random", "sorted", "reverse", "equal", "few"} {
		roles[kind] = func(ctx context.Context) error { return run(ctx, options{numbers: 5003, kind: kind, seed: 7}) }
	}
	roles["one"] = func(ctx context.Context) error { return run(ctx, options{numbers: 1, kind: "random"}) }
	roles["nothing"] = func(ctx context.Context) error { return run(ctx, options{kind: "random"}) }
	roles["huge"] = func(ctx context.Context) error { return run(ctx, options{numbers: math.MaxInt, kind: "equal"}) }
	launchtest.Main(m, roles)
}

// Whatever the numbers, the ranks end with sorted runs of about the same length.
func TestSorts(t *testing.T) {
	for _, c := range []struct {
		n      int
		fabric string
		role   string
	}{
		{1, "shm", "random"}, {2, "shm", "random"}, {4, "shm", "equal"}, {3, "shm", "few"}, {4, "tcp", "reverse"},
		{3, "tcp", "sorted"}, {4, "shm", "one"}, {3, "shm", "nothing"}, {2, "ibv", "random"},
	} {
		t.Run(fmt.Sprintf("%d ranks %s %s", c.n, c.fabric, c.role), func(t *testing.T) {
			launchtest.Parallel(t, c.fabric)
			out := launchtest.Job{N: c.n, Role: c.role, Fabric: c.fabric}.Output(t)
			require.Contains(t, out, "[0] sorted, and the same numbers as before\n")
			require.Contains(t, out, " ranks over "+c.fabric)
			if c.role == "one" || c.role == "nothing" {
				return
			}
			var largest int
			var rel float64
			_, err := fmt.Sscanf(out[strings.Index(out, "largest share"):], "largest share %d, %f", &largest, &rel)
			require.NoError(t, err, out)
			require.LessOrEqual(t, rel, 2.0)
		})
	}
}

func TestTooMany(t *testing.T) {
	t.Parallel()
	out, _, err := launchtest.Job{N: 1, Role: "huge", Fabric: "shm"}.Run(t)
	require.Error(t, err)
	require.Contains(t, out, "want 0 to 1073741824")
}

// Pieces of all ranks lie between the same splitters.
func TestCutAgrees(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		ranks := 2 + rng.IntN(4)
		var runs [][]uint64
		var all []place
		for r := range ranks {
			run := make([]uint64, rng.IntN(20))
			for i := range run {
				run[i] = rng.Uint64N(4) * (^uint64(0) / 3) // many equal ones, and the largest there is
			}
			slices.Sort(run)
			runs = append(runs, run)
			for i, v := range run {
				all = append(all, place{v, uint64(r), uint64(i)})
			}
		}
		slices.SortFunc(all, place.compare)
		if len(all) < ranks {
			continue
		}
		var split []place
		for i := 1; i < ranks; i++ {
			split = append(split, all[rng.IntN(len(all))])
		}
		slices.SortFunc(split, place.compare)
		for r, run := range runs {
			ends := cut(run, r, split)
			require.Len(t, ends, ranks)
			from := 0
			for share, end := range ends {
				require.GreaterOrEqual(t, end, from)
				for i := from; i < end; i++ {
					p := place{run[i], uint64(r), uint64(i)}
					require.True(t, share == 0 || split[share-1].compare(p) <= 0)
					require.True(t, share == ranks-1 || p.compare(split[share]) < 0)
				}
				from = end
			}
		}
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 1; n < 8; n++ {
		var runs [][]uint64
		var want []uint64
		for range n {
			run := make([]uint64, rng.IntN(10))
			for i := range run {
				run[i] = rng.Uint64N(20)
			}
			slices.Sort(run)
			runs = append(runs, run)
			want = append(want, run...)
		}
		slices.Sort(want)
		require.Equal(t, want, append([]uint64(nil), merge(runs)...))
	}
}

// The digest tells bags apart that have the same count and sum.
func TestDigest(t *testing.T) {
	t.Parallel()
	require.Equal(t, digest([]uint64{3, 1, 2}), digest([]uint64{1, 2, 3}))
	require.NotEqual(t, digest([]uint64{1, 3}), digest([]uint64{2, 2}))
}

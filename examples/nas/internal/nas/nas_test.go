//go:build unix

package nas_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/examples/nas/internal/nas"
	"github.com/seed33544411/rma/examples/nas/internal/nastest"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

func TestRandomSkips(t *testing.T) {
	x := nas.Seed
	for n := range int64(200) {
		require.Equal(t, x, nas.Seed.Skip(n), n)
		v := x.Next()
		require.True(t, v > 0 && v < 1)
	}
	require.Equal(t, nas.Seed.Skip(1<<44), nas.Seed, "the period of the generator") // 2^46 / 4
	require.NotEqual(t, nas.Seed.Skip(1<<43), nas.Seed)
}

func TestNear(t *testing.T) {
	require.True(t, nas.Near(-1.0000001, -1, 1e-6))
	require.False(t, nas.Near(-1.00001, -1, 1e-6))
	require.False(t, nas.Near(math.NaN(), 1, 1e-6))
	require.False(t, nas.Near(1, -1, 1e-6))
}

func TestUnknownClass(t *testing.T) {
	_, err := nas.Pick("s", map[nas.Class]int{"S": 1})
	require.EqualError(t, err, `class "s": want one of [S W A B]`)
}

// A wrong result is reported, and is an error on all ranks.
func TestUnverified(t *testing.T) {
	k := nas.Kernel{Name: "XX", Run: func(ctx context.Context, c *nas.Comm, class nas.Class) (nas.Result, error) {
		err := c.Start(ctx)
		c.Stop()
		return nas.Result{Size: "17"}, err
	}}
	report, err := nastest.Run(t, k, 2, "shm")
	require.ErrorIs(t, err, nas.ErrUnverified)
	require.Contains(t, report, " Verification    =             UNSUCCESSFUL\n")
	require.Contains(t, report, " Size            =                       17\n")
}

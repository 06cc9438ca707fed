//go:build linux

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRailsSteps(t *testing.T) {
	t.Parallel()
	o, err := parseRails([]string{"-vm", "qemu", "-ratios", "1:1,1:3", "-sum", "4M", "-sizes", "1M"})
	require.NoError(t, err)
	steps, err := o.steps("/b")
	require.NoError(t, err)
	require.Len(t, steps, 4)
	require.Equal(t, "verbs, rates 1:3", steps[1].Name)
	require.Equal(t, []int64{1 << 20, 3 << 20}, steps[1].Rates)
	require.Subset(t, steps[1].Argv, []string{"/b", "rails", "rxe0,rxe2", "rxe1,rxe3", "1:3", "1M"})
	require.Subset(t, steps[2].Argv, []string{"10.9.0.1,10.9.1.1", "10.9.0.2,10.9.1.2"})
	for _, bad := range [][]string{{"-ratios", "1"}, {"-ratios", "0:1"}, {"-sum", "x"}, {"-sum", "1"}, {"-fabrics", "shm"}} {
		o, err := parseRails(bad)
		require.NoError(t, err, bad)
		_, err = o.steps("/b")
		require.ErrorIs(t, err, errUsage, bad)
	}
}

//go:build linux

package main

import (
	"os"
	"path/filepath"
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

// Results are collected however the output is cut, and everything is shown.
func TestRailsLines(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer f.Close()
	w := &railsLines{out: f}
	text := "--- a\n{\"x\":1}\nnoise\n{\"x\":2}\n--- a: ok\n"
	for i := range text {
		n, err := w.Write([]byte{text[i]})
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	require.Equal(t, []string{"{\"x\":1}\n", "{\"x\":2}\n"}, w.lines)
	shown, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	require.Equal(t, text, string(shown))
}

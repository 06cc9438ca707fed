//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOverlapStep(t *testing.T) {
	t.Parallel()
	o, err := parseOverlap([]string{"-vm", "qemu", "-rate", "4M", "-sizes", "1M", "-ratios", "1,2"})
	require.NoError(t, err)
	steps, err := o.steps("/b")
	require.NoError(t, err)
	require.Len(t, steps, 1)
	s := steps[0]
	require.Equal(t, []int64{4 << 20}, s.Rates)
	require.Subset(t, s.Argv, []string{"/b", "overlap", "verbs", "1M", "message,put,get", "1,2"})
	require.Contains(t, s.Env, "RMA_ROOT=10.9.0.1:7117")
	for _, bad := range [][]string{{"-rate", "x"}, {"-rate", "1"}, {"-fabric", "shm"}} {
		o, err := parseOverlap(bad)
		require.NoError(t, err, bad)
		_, err = o.steps("/b")
		require.ErrorIs(t, err, errUsage, bad)
	}
	_, err = parseOverlap([]string{"-vm", "native"})
	require.ErrorIs(t, err, errUsage)
}

// Results are collected however the output is cut, with and without the prefix of the first
// guest, and everything is shown.
func TestResultLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := &resultLines{out: &out}
	text := "--- a\n{\"x\":1}\nnoise\n0| {\"x\":2}\n1| {\n--- a: ok\n"
	for i := range text {
		n, err := w.Write([]byte{text[i]})
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	require.Equal(t, []string{"{\"x\":1}\n", "{\"x\":2}\n"}, w.lines)
	require.Equal(t, text, out.String())
}

func TestPrintOverlap(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, printOverlap(&out, []string{
		`{"op":"put","size":1048576,"who":"sender","factor":1,"comm_us":30000,"ratio":0.5}`,
		`{"op":"put","size":1048576,"who":"both","factor":1,"comm_us":30000,"ratio":0.7}`,
		`{"op":"put","size":1048576,"who":"sender","factor":1,"comm_us":34000,"ratio":0.6}`,
	}))
	require.Equal(t, "| put | 1M | 1 | 30 | 0.55 (0.50–0.60) | | 0.70 (0.70–0.70) |", strings.Split(out.String(), "\n")[2])
	require.Error(t, printOverlap(&out, []string{"{"}))
}

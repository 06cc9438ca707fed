//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page lists the profiles with their quirks.
func TestZooPageHasTheProfiles(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/zoo.md")
	require.NoError(t, err)
	for _, p := range profiles {
		quirks := "none"
		if p.quirks != "" {
			quirks = "`" + strings.ReplaceAll(p.quirks, ",", "`, `") + "`"
		}
		require.Contains(t, string(page), "| `"+p.name+"` | "+p.like+" | "+quirks+" |\n")
	}
}

// Builds without the tag contain nothing of the shim; those with it do, so the word is the
// right one.
func TestProductionHasNoZoo(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("go", "env", "CGO_ENABLED").Output(); err != nil || strings.TrimSpace(string(out)) != "1" {
		t.Skip("without cgo there is no shim")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler")
	}
	has := func(tags string) bool {
		bin := t.TempDir() + "/rcpingpong" // the smallest program over verbs
		out, err := exec.Command("go", "build", "-tags", tags, "-o", bin, "../../examples/rcpingpong").CombinedOutput()
		require.NoError(t, err, "%s", out)
		b, err := os.ReadFile(bin)
		require.NoError(t, err)
		return bytes.Contains(b, []byte("zoo_install")) || bytes.Contains(b, []byte("RMA_ZOO: no quirk"))
	}
	require.True(t, has(zooTag))
	require.False(t, has(""))
}

func TestChooseProfiles(t *testing.T) {
	t.Parallel()
	all, err := chooseProfiles("")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(all), 11)
	two, err := chooseProfiles("siw,efa")
	require.NoError(t, err)
	require.Equal(t, []string{"siw", "efa"}, []string{two[0].name, two[1].name})
	_, err = chooseProfiles("siw,pigeon")
	require.ErrorIs(t, err, errUsage)
	require.ErrorContains(t, err, `"pigeon"`)
}

// Failed tests are counted and shown; a step that fails without one, or is missing, counts.
func TestZooLines(t *testing.T) {
	t.Parallel()
	var shown strings.Builder
	c := &zooCount{out: &shown, steps: map[string]*zooLine{}}
	for _, s := range []string{"--- siw, link\n=== RUN   TestA\n--- PA", "SS: TestA (0.1s)\n    --- FAIL: TestB/c (0.1s)\n",
		"--- siw, link: ok (1.0 s)\n--- efa, link\n    --- PASS: TestA (0.0s)\n--- SKIP: TestC (0.00s)\nPASS\n"} {
		n, err := c.Write([]byte(s))
		require.NoError(t, err)
		require.Equal(t, len(s), n)
	}
	require.Equal(t, "--- siw, link\n    --- FAIL: TestB/c (0.1s)\n--- siw, link: ok (1.0 s)\n--- efa, link\n", shown.String())
	chosen, err := chooseProfiles("siw,efa,v1")
	require.NoError(t, err)
	lines := zooLines(chosen, c.steps, Result{Steps: []StepResult{
		{Name: "siw, link", Code: 1, Seconds: 2}, {Name: "siw, engine", Seconds: 3}, {Name: "efa, link", Seconds: 1}, {Name: "efa, engine", Code: 124},
	}})
	require.Len(t, lines, 3)
	require.Equal(t, []int{2, 1, 5}, []int{lines[0].Tests, lines[0].Failures, int(lines[0].Seconds)})
	require.Equal(t, []int{1, 1}, []int{lines[1].Tests, lines[1].Failures}, "timed out")
	require.Equal(t, 1, lines[2].Failures, "never ran")
	var table strings.Builder
	writeZooTable(&table, lines)
	require.Contains(t, table.String(), "3 profiles in 6 s")
}

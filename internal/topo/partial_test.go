package topo

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/cpu"
)

var update = flag.Bool("update", false, "write the placements of testdata/hosts")

// Hosts that report their processors partly, wrongly or not at all: each file of
// testdata/hosts has a comment, the processors that the process may use, the files of sysfs,
// and the placement of three ranks with what it assumes.
func TestPlaceOnHostsThatReportLittle(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/hosts/*.txt")
	require.NoError(t, err)
	require.Len(t, files, 11)
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		input, want, ok := strings.Cut(string(b), "\nplacement\n")
		require.True(t, ok, f)
		root, allowed := fstest.MapFS{}, cpu.Set{}
		for line := range strings.Lines(input) {
			name, value, ok := strings.Cut(strings.TrimRight(line, "\n"), " = ")
			switch {
			case name == "allowed":
				allowed, err = cpu.ParseSet(value)
				require.NoError(t, err, f)
			case ok:
				root[name] = text(value)
			default:
				require.True(t, line == "\n" || line[0] == '#', "%s: %s", f, line)
			}
		}
		h := Read(root, allowed, allowed)
		nodes, assumed := ReadNodes(root, h.Online)
		bound := h.Place(nodes, allowed, 3, Scatter)
		var got strings.Builder
		for r, at := range bound {
			fmt.Fprintf(&got, "rank %d: node %d, processors %v, progress %v\n", r, at.Node, at.CPUs, at.Progress)
			require.True(t, at.CPUs.Within(allowed) && at.Progress.Within(allowed), f)
		}
		for _, a := range append(h.Assumed, assumed...) {
			fmt.Fprintln(&got, "assumed:", a)
		}
		if *update {
			require.NoError(t, os.WriteFile(f, []byte(input+"\nplacement\n"+got.String()), 0o644))
			continue
		}
		require.Len(t, bound, 3, "%s: ranks are bound in any case", f)
		require.Equal(t, want, got.String(), f)
	}
}

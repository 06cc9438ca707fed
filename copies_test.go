package rma

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bulk"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/topo"
	"github.com/seed33544411/rma/sampling"
)

// One rank measures how to copy large blocks, and all ranks use its result; the next start
// loads it. The figures of the link are kept under the class of the pair.
func TestCopiesOfAJob(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		want := "profile"
		saved, err := filepath.Glob(filepath.Join(dir, "copies-*"))
		require.NoError(t, err)
		if len(saved) == 0 {
			want = "measured" // the first job, or so busy a machine that it has measured nothing
		}
		es := openWith(t, 3, "shm", func(c *Config) { c.Sampling, c.Profiles = "", dir })
		first := es[0].links[0].(fabric.CopyTuner).Copies()
		require.Equal(t, want, first.Source)
		class := sampling.ClassOf(nil, true)
		if n := topo.Local().Between(cpu.Allowed(), cpu.Allowed()).String(); n != "" {
			class += sampling.Class("-" + n)
		}
		for _, e := range es {
			c := e.links[0].(fabric.CopyTuner).Copies()
			require.Equal(t, first.Source, c.Source)
			require.Equal(t, first.Plan.String, c.Plan.String)
			require.Equal(t, class, e.bringup.Path(1-min(e.Rank(), 1)).Of)
		}
		for _, e := range es {
			require.NoError(t, e.Close())
		}
	}
	es := openWith(t, 2, "shm", func(c *Config) { c.Sampling = "off" })
	require.Equal(t, "caches", es[0].links[0].(fabric.CopyTuner).Copies().Source)
}

// The user's sizes override the measurement.
func TestCopiesForced(t *testing.T) {
	t.Setenv("RMA_COPY_STREAM", "3M")
	t.Setenv("RMA_COPY_STRING", "-1")
	es := openWith(t, 2, "shm", func(c *Config) { c.Sampling, c.Profiles = "", t.TempDir() })
	for _, e := range es {
		c := e.links[0].(fabric.CopyTuner).Copies()
		require.Equal(t, "forced", c.Source)
		require.Equal(t, bulk.Plan{String: bulk.Never, Stream: 3 << 20}, c.Plan)
	}
}

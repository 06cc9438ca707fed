package rma

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/sampling"
)

// The first pair measures, all ranks get the figures, and the next start loads them.
func TestCalibration(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		dir := t.TempDir()
		var first []*Engine
		for start := range 2 {
			es := openWith(t, 3, fabric, func(c *Config) {
				c.Sampling, c.Profiles = "", dir
				c.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
			})
			for r, e := range es {
				require.Len(t, e.links, 1)
				l, lowest := e.bringup, es[0].bringup
				for to := range es {
					require.NoError(t, l.Path(to).Params.Validate())
				}
				require.Equal(t, lowest.Path(1).Params, es[1].bringup.Path(2).Params, "up")
				require.Equal(t, es[1].bringup.Path(0).Params, es[2].bringup.Path(1).Params, "down")
				if r == 2 {
					require.Empty(t, l.Measured, "the first pair measures")
					continue
				}
				require.Len(t, l.Measured, 1)
				m := l.Measured[0]
				require.Equal(t, lowest.Measured[0].Tables, m.Tables, "rank %d", r)
				if m.Source == sampling.FromProfile {
					require.Equal(t, first[0].bringup.Measured[0].Tables, m.Tables)
					require.Zero(t, l.Batches, "a start with a profile plays no batches")
					// Ten requests; on a machine so busy that those say little, 85 more.
					require.LessOrEqual(t, m.Posts, 95, "nor does it measure anything else")
				} else {
					require.Equal(t, 1, l.Batches)
				}
				t.Logf("rank %d: %v, %v and %d requests for curves, %d batches, errors %.2f", r, m.Source, m.Spent(), m.Posts, m.Fit.Probes, m.Fit.Error)
			}
			// On a busy machine the budget may end before anything was measured: then
			// nothing is saved.
			saved, err := filepath.Glob(filepath.Join(dir, "plogp-*"))
			require.NoError(t, err)
			if len(saved) > 0 {
				require.NotEqual(t, sampling.Defaults(es[0].links[0].Name()), *es[0].bringup.Path(1).Params)
			}
			if start == 0 {
				first = es
				continue
			}
			// Saved, or found implausible on a machine that is busier or less busy
			// now: then measured again.
			t.Log("saved figures used:", first[0].bringup.Path(1).Params.Ls == es[0].bringup.Path(1).Params.Ls)
		}
		_, _, _, err := (&Config{Sampling: "sometimes"}).effective()
		require.ErrorContains(t, err, "cached, force or off")
	})
}

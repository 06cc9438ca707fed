package rma

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/sampling"
)

// The first pair measures, all ranks know, and the next start finds it saved.
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
				require.Len(t, e.params, 1)
				if r == 2 {
					require.Empty(t, e.measured, "the first pair measures")
					require.Equal(t, es[0].params[0].up, e.params[0].up)
					continue
				}
				require.Len(t, e.measured, 1)
				m := e.measured[0]
				require.Equal(t, es[0].measured[0].Tables, m.Tables, "rank %d", r)
				if m.Source == sampling.FromProfile {
					require.Equal(t, first[0].measured[0].Tables, m.Tables)
					require.Zero(t, e.fits, "a start with a profile plays no batches")
					// Ten requests; on a machine so busy that those say little, 85 more.
					require.LessOrEqual(t, m.Posts, 95, "nor does it measure anything else")
				} else {
					require.Equal(t, 1, e.fits)
				}
				t.Logf("rank %d: %v, %v and %d requests for curves, %d batches, errors %.2f", r, m.Source, m.Spent(), m.Posts, m.Fit.Probes, m.Fit.Error)
				for _, p := range []linkParams{e.params[0]} {
					require.NoError(t, p.up.Validate())
					require.Equal(t, es[0].params[0].up, p.up, "rank %d", r)
					require.Equal(t, es[0].params[0].down, p.down, "rank %d", r)
				}
			}
			// On a busy machine the budget may end before anything was measured: then
			// nothing is saved.
			saved, err := filepath.Glob(filepath.Join(dir, "plogp-*"))
			require.NoError(t, err)
			if len(saved) > 0 {
				require.NotEqual(t, sampling.Defaults(es[0].links[0].Name()), *es[0].params[0].up)
			}
			if start == 0 {
				first = es
				continue
			}
			// Saved, or found implausible on a machine that is busier or less busy
			// now: then measured again.
			t.Log("saved figures used:", first[0].params[0].up.Ls == es[0].params[0].up.Ls)
		}
		_, _, _, err := (&Config{Sampling: "sometimes"}).effective()
		require.ErrorContains(t, err, "cached, force or off")
	})
}

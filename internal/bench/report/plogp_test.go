package report

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/sampling"
)

// Sampled curves are drawn; a sampling without time for a single sample is in the
// tables only.
func TestPageShowsParameters(t *testing.T) {
	t.Parallel()
	curve := func(points ...logp.Point) logp.Curve {
		c, err := logp.NewCurve(points)
		require.NoError(t, err)
		return c
	}
	res := bench.PlogpResult{Fabric: "tcp", Halves: [2]*sampling.Half{{}, {}}}
	res.Tables.Both.Os = curve(logp.Point{Size: 0}, logp.Point{Size: 1 << 20, NS: 419430})
	for _, drawn := range []bool{false, true} {
		if drawn {
			res.Tables.Both.Os = curve(logp.Point{Size: 8, NS: 100, Conf: 1}, logp.Point{Size: 1 << 10, NS: 300, Conf: 0.5}, logp.Point{Size: 1 << 20, NS: 1e5, Conf: 1})
		}
		var b bytes.Buffer
		require.NoError(t, (&Report{Plogp: []bench.PlogpResult{res}}).WriteHTML(&b))
		require.Contains(t, b.String(), "Sampled parameters of the cost model")
		require.Contains(t, b.String(), "gap between operations")
		if drawn {
			require.Contains(t, b.String(), `id="plogp-os"`)
		} else {
			require.Contains(t, b.String(), "default parameters")
			require.NotContains(t, b.String(), `id="plogp-`)
		}
	}
}

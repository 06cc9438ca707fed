package sampling

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/logp"
)

// Real links: figures that hold on a machine of any speed and any load.
func TestRealLinks(t *testing.T) {
	for name, open := range realLinks {
		t.Run(name, func(t *testing.T) { overLink(t, open) })
	}
}

func overLink(t *testing.T, open opener) {
	a, b := sessions(t, open, Options{Mode: Force, Budget: 100 * time.Millisecond, StepTimeout: 30 * time.Second}, Options{Mode: Force, Budget: time.Second})
	r, _ := agreed(t, a, b)
	require.Equal(t, FromMeasurement, r.Source)
	require.NoError(t, r.SaveErr)
	for i, h := range r.Halves {
		t.Logf("half %d: %d samples, %d dropped, %.1f ms, cut %v: round trip %.0f, read %.0f, %+v", i, h.Samples, h.Dropped, h.Spent/1e6, h.Cut, h.RoundTrip, h.Read, h.Conf)
		t.Logf("a %.0f b %.0f g %.0f ls %.0f lh %.0f or %.0f extra %v", h.Params.CPU.A, h.Params.CPU.B, h.Params.G, h.Params.Ls, h.Params.Lh, h.Params.Or.At(0), h.Params.Extra[logp.Scatter])
		t.Logf("Os %v", h.Params.Os.Points())
		t.Logf("Complete %v", h.Complete.Points())
		t.Logf("C %v", h.Params.C.Points())
		t.Logf("R %v", h.Params.R.Points())
		require.NoError(t, h.validate())
		require.Positive(t, h.Samples)
		require.True(t, slices.IsSortedFunc(h.Params.Os.Points(), func(a, b logp.Point) int { return cmp.Compare(a.NS, b.NS) }))
		require.Positive(t, h.Params.CPU.A+h.Params.CPU.B+h.Params.G)
		// On a busy machine a few operations may use the budget up.
		require.True(t, h.Cut || h.Read > 0 && h.RoundTrip > 0)
		require.True(t, h.Cut || h.Params.Os.Points()[len(h.Params.Os.Points())-1].Size == DefaultMaxSize)
	}
}

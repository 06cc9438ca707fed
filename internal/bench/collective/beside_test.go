package collective

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBeside(t *testing.T) {
	t.Parallel()
	r := func(peer string, ranks int, us float64) Result {
		return Result{Op: "scan", Size: 8, Ranks: ranks, Fabric: "shm", Bind: "none", Peer: peer, US: us, MaxUS: 2 * us}
	}
	want := r("mpich", 2, 60)
	want.Ratio, want.RatioMin, want.RatioMax = 3.5, 2, 5
	rs := Beside([]Result{r("", 2, 10), r("mpich", 2, 20), r("", 2, 20), r("mpich", 2, 100), r("", 2, 40), r("", 4, 1)}) // mpich failed once
	require.Equal(t, []Result{r("", 2, 20), want, r("", 4, 1)}, rs)

	var w bytes.Buffer
	require.NoError(t, WriteText(&w, rs))
	require.Regexp(t, `scan +8 +2 +shm +none +20.00 +40.00  rma\n`, w.String())
	require.Regexp(t, `scan +8 +2 +shm +none +60.00 +120.00  mpich +3.50  2.00–5.00 +ahead\n`, w.String())
	w.Reset()
	require.NoError(t, WriteText(&w, rs[:1]))
	require.NotContains(t, w.String(), "library")
}

// The overlap is that of IMB-NBC, and what would be beyond all or nothing is noise.
func TestHidden(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ pure, cpu, both, want float64 }{
		{10, 10, 10, 100}, {10, 10, 20, 0}, {10, 10, 12.5, 75}, {10, 20, 25, 50}, {20, 10, 25, 50}, {10, 10, 5, 100}, {10, 10, 40, 0}, {10, 0, 10, 0},
	} {
		h := Hidden{Pure: x.pure, CPU: x.cpu, Both: x.both}
		h.Derive()
		require.InDelta(t, x.want, h.Overlap, 1e-9, "%+v", x)
	}
	at := func(round int, progress string, pure, overlap float64) Hidden {
		return Hidden{What: NBC, Op: "scan", Size: 8, Ranks: 2, Fabric: "shm", Progress: progress, Round: round, Pure: pure, Overlap: overlap}
	}
	cs := HiddenCells([]Hidden{at(0, "default", 1, 10), at(0, "placed", 3, 90), at(1, "default", 2, 40), at(2, "default", 9, 20)})
	require.Equal(t, []HiddenCell{{at(0, "default", 2, 20), 10, 40}, {at(0, "placed", 3, 90), 90, 90}}, cs)
}

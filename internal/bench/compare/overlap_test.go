package compare

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bench/overlap"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestParseOverlap(t *testing.T) {
	t.Parallel()
	point := overlap.Result{Fabric: "shm", Op: "message", Size: 1 << 20, Who: "sender", Factor: 0.5}
	for out, ok := range map[string]bool{
		"overlap message 1048576 sender 0.5 80.000 40.000 82.000 630\n":       true,
		"a warning\noverlap message 1048576 sender 0.5 80 40 82 630\nanother": true,
		"overlap message 1048576 sender 0.5 80 0 82 630\n":                    true, // no rank's time is zero but that of the computation may be
		"": false,
		"overlap message 1048576 sender 0.5 80 40 82\n":       false,
		"overlap put 1048576 sender 0.5 80 40 82 630\n":       false,
		"overlap message 4096 sender 0.5 80 40 82 630\n":      false,
		"overlap message 1048576 both 0.5 80 40 82 630\n":     false,
		"overlap message 1048576 sender 1 80 40 82 630\n":     false,
		"overlap message 1048576 sender 0.5 nan 40 82 630\n":  false,
		"overlap message 1048576 sender 0.5 0 40 82 630\n":    false,
		"overlap message 1048576 sender 0.5 80 40 82 0\n":     false,
		"overlap message 1048576 sender 0.5 80 40 82 1e300\n": false,
	} {
		x := point
		err := parseOverlap([]byte(out), &x)
		if !ok {
			require.ErrorIs(t, err, ErrOutput, "%q", out)
			require.Equal(t, point, x)
			continue
		}
		require.NoError(t, err, "%q", out)
		require.InDelta(t, 82/(80+x.Compute), x.Ratio, 1e-9)
		require.Equal(t, 630, x.Samples)
		require.Positive(t, x.Bound)
	}
}

func TestOverlapRefusals(t *testing.T) {
	t.Parallel()
	ctx := testutil.Context(t, testutil.Limit)
	_, err := NewOverlap(ctx, "overlap", "shm", []string{"lam"})
	require.ErrorIs(t, err, ErrPeer)
	_, err = NewOverlap(ctx, "overlap", "verbs", []string{"openmpi"})
	require.ErrorIs(t, err, ErrFabric)
}

// Each installed library measures a point of each operation.
func TestOverlapOfPeersInstalledHere(t *testing.T) {
	needProc(t)
	if testing.Short() {
		t.Skip("starts other libraries' programs")
	}
	for i := range mpiLibraries {
		l := &mpiLibraries[i]
		if err := (&Peer{Name: l.name, Needs: l.needs}).Missing("shm"); err != nil {
			t.Log(err)
			continue
		}
		ctx := testutil.Context(t, testutil.Limit)
		o, err := NewOverlap(ctx, "overlap", "shm", []string{l.name})
		require.NoError(t, err)
		req := overlap.Request{
			What: "overlap", Ops: overlap.OverlapOps, Who: []string{"both"}, Sizes: []int{64 << 10}, Ratios: []float64{1},
			Rounds: 1, Time: time.Millisecond,
		}
		var rs []overlap.Result
		require.NoError(t, o.Round(ctx, &req, 3, func(r overlap.Result) error { rs = append(rs, r); return nil }))
		require.Len(t, rs, o.Points(&req))
		for k, r := range rs {
			require.Equal(t, overlap.Result{What: "overlap", Library: l.name, Fabric: "shm", Round: 3, Op: req.Ops[k], Size: 64 << 10, Who: "both", Factor: 1},
				overlap.Result{What: r.What, Library: r.Library, Fabric: r.Fabric, Round: r.Round, Op: r.Op, Size: r.Size, Who: r.Who, Factor: r.Factor})
			require.Positive(t, r.Ratio)
			require.Positive(t, r.Samples)
		}
		require.NoError(t, o.Close())
		require.NoDirExists(t, o.dir.Path)
		require.NotEqual(t, os.TempDir(), o.dir)
	}
}

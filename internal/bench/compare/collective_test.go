package compare

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bench/collective"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/topo"
)

func TestParseCells(t *testing.T) {
	t.Parallel()
	req := &collective.Request{Ops: []string{"barrier", "scan"}, Sizes: []int{8, 64}}
	type cell struct {
		op   string
		size int
		us   float64
	}
	for out, ok := range map[string]bool{
		"coll barrier 0 3 4 100\ncoll scan 8 1.5 2 9\ncoll scan 64 2 2 9\n":                   true,
		"a warning\ncoll barrier 0 3 4 100\nanother\ncoll scan 8 1.5 2 9\ncoll scan 64 2 2 9": true,
		"":                       false,
		"coll barrier 0 3 4 100": false,
		"coll barrier 0 3 4 100\ncoll scan 8 1.5 2 9\ncoll scan 32 2 2 9\n":  false,
		"coll barrier 0 3 4 100\ncoll scan 8 0 2 9\ncoll scan 64 2 2 9\n":    false,
		"coll barrier 0 3 4 100\ncoll scan 8 nan 2 9\ncoll scan 64 2 2 9\n":  false,
		"coll barrier 0 3 4 100\ncoll scan 8 1 2 9 9\ncoll scan 64 2 2 9\n":  false,
		"coll barrier 0 3 4\ncoll scan 8 1 2 9\ncoll scan 64 2 2 9\n":        false,
		"coll barrier 0 \ncoll scan 8 1 2 9\ncoll scan 64 2 2 9\n":           false,
		"nbc barrier 0 3 4 5 100\ncoll scan 8 1.5 2 9\ncoll scan 64 2 2 9\n": false,
	} {
		var got []cell
		err := parseCells([]byte(out), "coll", req, func(op string, size int, v []float64) { got = append(got, cell{op, size, v[0]}) })
		if !ok {
			require.ErrorIs(t, err, ErrOutput, "%q", out)
			continue
		}
		require.NoError(t, err, "%q", out)
		require.Equal(t, []cell{{"barrier", 0, 3}, {"scan", 8, 1.5}, {"scan", 64, 2}}, got)
	}
}

// Each installed library measures every operation and finds the results right; Open MPI also by more
// ranks than this machine may have processors, which MPICH, which always polls, takes long for.
func TestCollectiveOfPeersInstalledHere(t *testing.T) {
	if testing.Short() {
		t.Skip("starts other libraries' programs")
	}
	for _, name := range MPINames() {
		ctx := testutil.Context(t, testutil.Limit)
		c, err := NewCollective(ctx, "shm", name)
		if err != nil {
			require.ErrorIs(t, err, ErrMissing)
			t.Log(err)
			continue
		}
		req := &collective.Request{Ops: collective.Ops, Sizes: []int{8, 24}, Ranks: 2, Time: time.Microsecond, Bind: topo.Scatter}
		if name == "openmpi" {
			req.Ranks, req.Bind = 3, topo.None
		}
		rs, err := c.Latency(ctx, req)
		require.NoError(t, err)
		require.Len(t, rs, req.Cells())
		for _, r := range rs {
			require.Equal(t, name, r.Peer)
			require.Equal(t, req.Ranks, r.Ranks)
			require.Equal(t, req.Bind.String(), r.Bind)
			require.Positive(t, r.US)
			require.GreaterOrEqual(t, r.MaxUS, r.US*0.999)
		}
		req.Sizes = []int{8}
		hs, err := c.Hidden(ctx, req)
		require.NoError(t, err)
		require.Len(t, hs, req.Cells())
		for i, h := range hs {
			require.Equal(t, []string{name, collective.NBC, collective.Ops[i]}, []string{h.Peer, h.What, h.Op})
			require.True(t, h.Pure > 0 && h.Both > 0, "%+v", h)
		}
		// A series is as long as asked for, though the first calls are slow.
		req = &collective.Request{Ops: []string{"barrier"}, Sizes: []int{8}, Ranks: 2, Time: 100 * time.Millisecond, Bind: topo.Scatter}
		for took := 0.0; took < 0.2*float64(req.Time.Microseconds()) && name != "mpich-async"; { // the rest are barriers between calls
			// A time slice of another process makes a series shorter; those of mpich-async's threads always do.
			require.NoError(t, c.cells(ctx, collective.NBC, req, func(_ string, _ int, v []float64) { took = v[0] * v[3] }))
		}
		require.NoError(t, c.Close())
		require.NoDirExists(t, c.dir.Path)
	}
}

// Each rank of a library runs on the processors of its place.
func TestRanksOfLibrariesAreBound(t *testing.T) {
	t.Parallel()
	places := []topo.Binding{{CPUs: cpu.Of(0, 1, 4)}, {CPUs: cpu.Of(7)}}
	require.Equal(t, strings.Fields("-n 1 taskset -c 0-1,4 program 8 : -n 1 taskset -c 7 program 8"), mpiBound([]string{"program", "8"}, 2, places))
	require.Equal(t, strings.Fields("-n 2 program 8"), mpiBound([]string{"program", "8"}, 2, nil))
}

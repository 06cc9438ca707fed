package bench

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric/sim"
)

func TestBesideReads(t *testing.T) {
	t.Parallel()
	r := func(op Op, size, round int, mbs float64) Result {
		res := Result{Fabric: "sim", Op: op, Size: size, Round: round, MBs: mbs, Window: 16}
		if op == Send {
			res.Mode, res.Ways = "scatter", &Ways{Scatter: 10}
		}
		return res
	}
	rs := []Result{
		r(Get, 64, 0, 90), r(Send, 64, 0, 99), r(Get, 64, 0, 110), // 0.99
		r(Get, 64, 1, 10), r(Send, 64, 1, 9), r(Get, 64, 1, 10), // 0.90: the whole round is slow
		r(Get, 64, 2, 100), r(Send, 64, 2, 95), r(Get, 64, 2, 100), // 0.95
		r(Get, 8, 0, 1), r(Send, 8, 0, 0.5), r(Get, 8, 0, 1),
	}
	bs, err := BesideReads(rs)
	require.NoError(t, err)
	require.Len(t, bs, 2)
	require.Equal(t, 8, bs[0].Size)
	require.False(t, bs[0].Reached())
	b := bs[1]
	require.InDelta(t, 0.95, b.Ratio, 1e-9)
	require.InDelta(t, 0.90, b.RatioMin, 1e-9)
	require.InDelta(t, 0.99, b.RatioMax, 1e-9)
	require.Zero(t, b.Noise, "the median of 0.1, 0, 0")
	require.Equal(t, uint64(30), b.Ways.Scatter)
	require.Equal(t, 3, b.Rounds)
	require.True(t, b.Reached())
	_, err = BesideReads(rs[:2])
	require.Error(t, err, "a read is missing")

	var out bytes.Buffer
	require.NoError(t, WriteBeside(&out, bs))
	require.Contains(t, out.String(), "0.950")
	out.Reset()
	require.NoError(t, WriteLines(&out, bs))
	var line map[string]any
	require.NoError(t, json.Unmarshal([]byte(strings.Split(out.String(), "\n")[0]), &line))
	for _, k := range []string{"fabric", "size", "mode", "ways", "window", "send_mb_s", "get_mb_s", "ratio", "ratio_min", "ratio_max", "noise", "rounds", "machine"} {
		require.Contains(t, line, k)
	}
}

// The request of the comparison can be measured, and its results can be combined.
func TestRendezvousRequest(t *testing.T) {
	t.Parallel()
	req := RendezvousRequest("sim", Plan{Mode: "scatter", Size: []int{4096, 100_000}, Time: 2 * time.Millisecond, Window: 4, Count: 2, Validate: true})
	rs, err0, err1 := runPair(t, sim.Options{Seed: 1, Caps: sim.CapsLike("ibv")}, req, nil)
	require.NoError(t, err0)
	require.NoError(t, err1)
	require.Len(t, rs, 12)
	bs, err := BesideReads(rs)
	require.NoError(t, err)
	require.Len(t, bs, 2)
	for _, b := range bs {
		require.Equal(t, 2, b.Rounds)
		require.Equal(t, 4, b.Window)
		require.Equal(t, "scatter", b.Ways.String())
		require.Positive(t, b.Ratio)
	}
}

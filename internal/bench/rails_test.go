package bench

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// Two ranks measure over two links and over each alone.
func TestRails(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems have one loopback address")
	}
	a, b := newPipe()
	req := RailsRequest{Fabric: "tcp", Ops: RailsOps, Sizes: []int{1, 1 << 18}, Window: 2, Rounds: 1, Time: time.Millisecond, Rates: "1:1",
		Links: [2][]string{{"127.0.0.1", "127.0.0.2"}, {"127.0.0.3", "127.0.0.4"}}}
	ctx := testutil.Context(t, testutil.Limit)
	var rs []RailsResult
	other := make(chan error, 1)
	go func() { other <- MeasureRails(ctx, b, RailsRequest{}, nil) }()
	err := MeasureRails(ctx, a, req, func(r RailsResult) error { rs = append(rs, r); return nil })
	require.NoError(t, err)
	require.NoError(t, <-other)
	require.Len(t, rs, 6)
	for _, r := range rs {
		require.Equal(t, RailsWhat, r.What)
		require.Len(t, r.Alone, 2)
		require.Positive(t, r.OfBest)
		require.Less(t, r.OfSum, r.OfBest)
		require.InDelta(t, r.MBs, r.OfSum*(r.Alone[0]+r.Alone[1]), r.MBs/1e6)
		if r.Size == 1 {
			require.Zero(t, r.Divided)
		}
	}
	var out bytes.Buffer
	require.NoError(t, WriteRails(&out, rs))
	require.Contains(t, out.String(), "256K")
}

func TestRailsRequests(t *testing.T) {
	good := func() RailsRequest {
		return RailsRequest{Fabric: "tcp", Ops: []string{"put"}, Sizes: []int{8}, Window: 1, Rounds: 1, Time: time.Second,
			Links: [2][]string{{"10.0.0.1", "10.0.1.1"}, {"10.0.0.2", "::1"}}}
	}
	r := good()
	require.NoError(t, r.Check())
	for name, change := range map[string]func(*RailsRequest){
		"fabric":     func(r *RailsRequest) { r.Fabric = "shm" },
		"one link":   func(r *RailsRequest) { r.Links = [2][]string{{"10.0.0.1"}, {"10.0.0.2"}} },
		"unlike":     func(r *RailsRequest) { r.Links[1] = r.Links[1][:1] },
		"no address": func(r *RailsRequest) { r.Links[0][1] = "eth0" },
		"operation":  func(r *RailsRequest) { r.Ops = []string{"send"} },
		"none":       func(r *RailsRequest) { r.Ops = nil },
		"size":       func(r *RailsRequest) { r.Sizes = []int{0} },
		"long":       func(r *RailsRequest) { r.Sizes = []int{maxRailsSize + 1} },
		"window":     func(r *RailsRequest) { r.Window = 0 },
		"rounds":     func(r *RailsRequest) { r.Rounds = maxCount + 1 },
		"time":       func(r *RailsRequest) { r.Time = 0 },
	} {
		r := good()
		change(&r)
		require.ErrorIs(t, r.Check(), ErrPlan, name)
	}
}

// Both parts end together, short operations go over one rail, and what cannot be read is named.
func TestCutOver(t *testing.T) {
	rails, err := ParseRails("20us:4,15us:28")
	require.NoError(t, err)
	c := CutOver(rails, 1<<20)
	require.True(t, c.Divided)
	require.EqualValues(t, 1<<20, c.Rails[0].Bytes+c.Rails[1].Bytes)
	require.InEpsilon(t, c.Rails[0].EndUS, c.Rails[1].EndUS, 0.05)
	require.InEpsilon(t, 32.0/28, c.OfBest, 0.01)
	require.InDelta(t, 1e3/4*float64(1<<20)/1e3+20, c.Rails[0].AloneUS, 1e-6)
	require.False(t, CutOver(rails, c.BreakEven/2).Divided)
	require.True(t, CutOver(rails, c.BreakEven).Divided)

	for n, at := range map[int]int{256: 0, 4 << 10: 1, 8 << 10: 1} { // bytes -> rail
		c := CutOver(rails, n)
		require.False(t, c.Divided)
		require.EqualValues(t, n, c.Rails[at].Bytes)
	}
	alike, err := ParseRails("20us:10,20us:11")
	require.NoError(t, err)
	require.EqualValues(t, 4<<10, CutOver(alike, 4<<10).Rails[0].Bytes, "another rail must save an eighth")
	far, err := ParseRails("0s:1000,10s:1e-3")
	require.NoError(t, err)
	require.Zero(t, CutOver(far, 1<<20).BreakEven)

	var text strings.Builder
	require.NoError(t, c.WriteText(&text))
	require.Contains(t, text.String(), "1048576 bytes: divided")
	for bad, want := range map[string]string{"20us:4": "1 rails", "1s:1,1s:1,1s:1,1s:1,1s:1": "5 rails", "1:1,1s:1": "missing unit",
		"-1s:1,1s:1": "negative", "1s,1s:1": "MB/s", "1s:0,1s:1": "positive", "1s:NaN,1s:1": "positive", "1s:1e-320,1s:1": "positive"} {
		_, err := ParseRails(bad)
		require.ErrorContains(t, err, want, bad)
	}
}

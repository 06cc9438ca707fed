package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPlanDefaultsAreMeasurable(t *testing.T) {
	t.Parallel()
	for _, test := range []Test{Lat, BW, Rate} {
		for _, op := range Ops {
			p := Plan{Test: test, Op: op}.WithDefaults()
			if test == BW && (op == FAdd || op == CAS) {
				require.ErrorIs(t, p.Check(), ErrPlan)
				continue
			}
			require.NoError(t, p.Check(), p.String())
		}
	}
	require.Equal(t, "lat put 8,4K", Plan{Test: Lat, Op: Put, Size: []int{8, 4096}}.String())
}

// The plan that rank 1 receives from the wire is bounded.
func TestPlanCheckRefuses(t *testing.T) {
	t.Parallel()
	good := Plan{Test: BW, Op: Get, Size: []int{8}}.WithDefaults()
	require.NoError(t, good.Check())
	for name, spoil := range map[string]func(*Plan){
		"test":        func(p *Plan) { p.Test = "x" },
		"op":          func(p *Plan) { p.Op = "steal" },
		"no sizes":    func(p *Plan) { p.Size = []int{} },
		"many sizes":  func(p *Plan) { p.Size = make([]int, maxSizes+1) },
		"zero size":   func(p *Plan) { p.Size = []int{0} },
		"large size":  func(p *Plan) { p.Size = []int{MaxSize + 1} },
		"twice":       func(p *Plan) { p.Size = []int{8, 9, 8} },
		"atomic size": func(p *Plan) { p.Test, p.Op, p.Size = Lat, CAS, []int{4} },
		"atomic bw":   func(p *Plan) { p.Op = FAdd },
		"time":        func(p *Plan) { p.Time = -time.Second },
		"long":        func(p *Plan) { p.Time = 2 * maxTime },
		"iters":       func(p *Plan) { p.Iters = -1 },
		"window":      func(p *Plan) { p.Window = maxWindow + 1 },
		"count":       func(p *Plan) { p.Count = -1 },
		"mode of get": func(p *Plan) { p.Mode = "eager" },
		"tags of get": func(p *Plan) { p.Tags = 2 },
		"mode":        func(p *Plan) { p.Op, p.Mode = Send, "x" },
		"tags":        func(p *Plan) { p.Op, p.Mode, p.Tags = Send, "auto", maxTags+1 },
		"eager size":  func(p *Plan) { p.Op, p.Size = Eager, []int{MaxEager + 1} },
		"stall":       func(p *Plan) { p.Stall = time.Nanosecond },
	} {
		p := good
		spoil(&p)
		require.ErrorIs(t, p.Check(), ErrPlan, name)
	}
	require.ErrorIs(t, (&Request{}).Check(), ErrPlan)
	require.ErrorIs(t, (&Request{Plans: make([]Plan, maxPlans+1)}).Check(), ErrPlan)
}

func TestWindowIsWholeChains(t *testing.T) {
	t.Parallel()
	for w := 1; w <= maxWindow; w += 7 {
		for _, n := range []int{1, 4096, 1 << 20, MaxSize} {
			p := point{Plan: &Plan{Test: BW, Op: Put, Window: w, Validate: w%2 == 0}, size: n}
			got := p.window()
			require.True(t, got >= 1 && got <= w)
			require.Zero(t, got%chainLen(got))
			require.GreaterOrEqual(t, p.span(), n)
			require.LessOrEqual(t, p.span(), max(checkedBytes, stride(n)))
		}
	}
}

// Interleaved series: all series at one size before the next size, rounds in alternating
// order.
func TestStepsTakeTurns(t *testing.T) {
	t.Parallel()
	r := Request{Plans: []Plan{
		{Test: BW, Op: Send, Mode: "scatter", Size: []int{8, 16}, Count: 2},
		{Test: BW, Op: Get, Size: []int{8, 16}, Count: 2},
	}}
	require.NoError(t, r.Check())
	require.Equal(t, []step{{0, 0, 8}, {0, 0, 16}, {0, 1, 8}, {0, 1, 16}, {1, 0, 8}, {1, 0, 16}, {1, 1, 8}, {1, 1, 16}}, r.steps())
	r.Interleave = true
	require.NoError(t, r.Check())
	require.Equal(t, []step{{0, 0, 8}, {1, 0, 8}, {0, 0, 16}, {1, 0, 16}, {1, 1, 16}, {0, 1, 16}, {1, 1, 8}, {0, 1, 8}}, r.steps())
	require.Len(t, r.steps(), r.Points())
	r.Plans[1].Size = []int{8}
	require.ErrorIs(t, r.Check(), ErrPlan)
	r.Plans[1].Size, r.Plans[1].Count = []int{8, 16}, 3
	require.ErrorIs(t, r.Check(), ErrPlan)
}

func TestWaysAreNamed(t *testing.T) {
	t.Parallel()
	require.Equal(t, "gather", (&Ways{Gather: 7}).String())
	require.Equal(t, "eager 25 %, scatter 75 %", (&Ways{Eager: 1, Scatter: 3}).String())
	require.Empty(t, (&Ways{}).String())
}

package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPlanDefaultsAreMeasurable(t *testing.T) {
	t.Parallel()
	for _, test := range []Test{Lat, BW, Rate} {
		for _, op := range []Op{Put, Get, Send, FAdd, CAS} {
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

// What rank 1 takes from the wire is bounded.
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

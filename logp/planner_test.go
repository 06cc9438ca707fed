package logp

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// keeps reports whether the plan of b is there already.
func (pl *Planner) keeps(b *Batch) bool {
	var wait [NumModes]float64
	for m, w := range b.Wait {
		if w != 0 {
			wait[m] = coarse(w)
		}
	}
	h := hash(b.Messages)
	set := h & uint64(len(pl.recent)-1)
	for w := range pl.ways[2*set : 2*set+2] {
		if pl.ways[2*set+uint64(w)].is(pl.gen, h, b, &wait) {
			return true
		}
	}
	return false
}

func TestRepeatedShapeAllocatesNothing(t *testing.T) {
	for _, n := range []int{1, 8, 64, 256} {
		pl, b := planner(t, typical(t)), shapes()["heavy"](n)
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if _, err := pl.Plan(b); err != nil {
				t.Fatal(err)
			}
		}), "%d messages", n)
		require.True(t, pl.keeps(b))
	}
}

// With its scratch memory grown, a planner allocates nothing for new shapes
// either.
func TestNewShapeAllocatesNothing(t *testing.T) {
	for _, mix := range []string{"uniform", "heavy", "flags", "ring"} {
		pl, batches := newShapes(t, mix, 64)
		i := 0
		plan := func() {
			if _, err := pl.Plan(batches[i%len(batches)]); err != nil {
				t.Fatal(err)
			}
			i++
		}
		for range 2 * len(batches) {
			plan()
		}
		require.Zero(t, testing.AllocsPerRun(100, plan), mix)
	}
}

// The cached plan of every batch is that of a planner which keeps nothing,
// however many shapes fight for a place.
func TestCacheIsExact(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(41, 1))
	p := typical(t)
	cached, err := NewPlanner(p, &PlannerConfig{Shapes: 4})
	require.NoError(t, err)
	fresh, err := NewPlanner(p, &PlannerConfig{Shapes: -1})
	require.NoError(t, err)
	var batches []*Batch
	for range 12 {
		b := randBatch(r, 1+r.IntN(20))
		batches = append(batches, b)
		// Neighbours that differ in one thing only.
		c := *b
		c.Messages = append([]Message(nil), b.Messages...)
		c.Messages[0].Size++
		d := *b
		d.Limits.Cursor = !d.Limits.Cursor
		e := *b
		e.Wait[Eager] += 1000
		batches = append(batches, &c, &d, &e)
	}
	hits, misses := 0, 0
	for range 5000 {
		b := batches[min(r.IntN(len(batches)), r.IntN(len(batches)))]
		if cached.keeps(b) {
			hits++
		} else {
			misses++
		}
		got, err := cached.Plan(b)
		want, err2 := fresh.Plan(b)
		require.Equal(t, err2, err)
		if err == nil {
			require.Equal(t, want.Parts, got.Parts)
			require.Equal(t, want.Total, got.Total)
		}
	}
	require.Greater(t, hits, 300)
	require.Greater(t, misses, 300)
}

// Equal hashes do not make equal shapes.
func TestHashCollision(t *testing.T) {
	t.Parallel()
	pl := planner(t, typical(t))
	a := &Batch{Messages: uniform(3, 100), Limits: usual()}
	b := &Batch{Messages: uniform(5, 90000), Limits: usual()}
	_, err := pl.Plan(a)
	require.NoError(t, err)
	// Make every slot claim b's hash.
	for i := range pl.ways {
		pl.ways[i].hash = hash(b.Messages)
		pl.ways[i].gen = pl.gen
	}
	plan, err := pl.Plan(b)
	require.NoError(t, err)
	checkPlan(t, &pl.p, b, plan)
}

func TestHashTellsOrderAndLength(t *testing.T) {
	t.Parallel()
	seen := map[uint64][]Message{}
	r := rand.New(rand.NewPCG(42, 1))
	for range 20000 {
		ms := make([]Message, r.IntN(9))
		for i := range ms {
			ms[i] = Message{Size: int64(r.IntN(4)), Flags: Flags(r.IntN(2))}
		}
		h := hash(ms)
		if old, ok := seen[h]; ok {
			require.True(t, same(old, ms), "%v and %v", old, ms)
		}
		seen[h] = ms
	}
}

func TestSame(t *testing.T) {
	t.Parallel()
	for n := range 70 {
		a := uniform(n, 5)
		require.True(t, same(a, uniform(n, 5)))
		require.False(t, same(a, uniform(n+1, 5)))
		for i := range a {
			b := uniform(n, 5)
			b[i].Flags = 0
			require.False(t, same(a, b))
		}
	}
}

func TestSetParamsForgets(t *testing.T) {
	t.Parallel()
	p := thesis(t)
	pl := planner(t, p)
	b := &Batch{Messages: uniform(1, 100), Limits: usual()}
	plan, err := pl.Plan(b)
	require.NoError(t, err)
	first := plan.Total
	q := times(t, p, 2)
	require.NoError(t, pl.SetParams(q))
	plan, err = pl.Plan(b)
	require.NoError(t, err)
	require.InEpsilon(t, 2*first, plan.Total, 1e-9)
	q.G = math.NaN()
	require.ErrorIs(t, pl.SetParams(q), ErrParams)
	plan, err = pl.Plan(b)
	require.NoError(t, err)
	require.InEpsilon(t, 2*first, plan.Total, 1e-9, "a refused change changes nothing")
}

func TestCoarse(t *testing.T) {
	t.Parallel()
	require.Zero(t, coarse(0))
	require.Equal(t, 1.0, coarse(1e-9))
	require.Equal(t, 1.0, coarse(1))
	require.Equal(t, 4.0, coarse(4))
	require.Equal(t, 5.0, coarse(4.5))
	require.Equal(t, 8.0, coarse(7.1))
	r := rand.New(rand.NewPCG(43, 1))
	last := map[float64]bool{}
	for range 10000 {
		x := math.Exp(25 * r.Float64())
		y := coarse(x)
		require.GreaterOrEqual(t, y, x)
		require.LessOrEqual(t, y, 1.25*x)
		require.Equal(t, y, coarse(y))
		last[y] = true
	}
	require.Less(t, len(last), 200)
}

func TestPlannerRefuses(t *testing.T) {
	t.Parallel()
	bad := thesis(t)
	bad.Ls = -1
	_, err := NewPlanner(bad, nil)
	require.ErrorIs(t, err, ErrParams)
	for _, c := range []PlannerConfig{
		{Shapes: 1 << 20}, {Policy: Policy{Mode: 9}}, {Policy: Policy{Table: []Rule{{Mode: 4}}}},
		{Policy: Policy{Table: []Rule{{MaxSize: -1}}}}, {Policy: Policy{Table: []Rule{{MaxCount: -1}}}},
	} {
		_, err := NewPlanner(thesis(t), &c)
		require.ErrorIs(t, err, ErrParams, "%+v", c)
	}
	pl := planner(t, thesis(t))
	for range 2 { // a failure is not cached as a plan
		_, err = pl.Plan(&Batch{Messages: []Message{{Size: -1}}, Limits: usual()})
		require.ErrorIs(t, err, ErrBatch)
		_, err = pl.Plan(&Batch{Messages: uniform(1, 1)})
		require.ErrorIs(t, err, ErrInfeasible, "the zero limits permit nothing")
	}
}

func TestForcedMode(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(44, 1))
	for range cases(600) {
		p, b := randParams(t, r), randBatch(r, 1+r.IntN(30))
		for m := range Mode(NumModes) {
			pl, err := NewPlanner(p, &PlannerConfig{Policy: Policy{Forced: true, Mode: m}})
			require.NoError(t, err)
			plan, err := pl.Plan(b)
			if err != nil {
				require.ErrorIs(t, err, ErrInfeasible)
				continue
			}
			require.Equal(t, WhyForced, plan.Why)
			require.NoError(t, checkParts(p, b, plan.Parts))
			for _, q := range plan.Parts {
				for _, i := range q.Messages {
					if p.Feasible(&b.Limits, b.Messages[i], m) == nil {
						require.Equal(t, m, q.Mode)
					}
				}
			}
			// Where one mode carries all, this is Cost.
			if c, err := p.Cost(rounded(b), m); err == nil {
				require.InEpsilon(t, 1+c.Total(), 1+plan.Total, 1e-9)
			}
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	pl, err := NewPlanner(thesis(t), &PlannerConfig{Policy: Policy{Table: []Rule{
		{MaxSize: 100, MaxCount: 2, Mode: Eager}, {MaxSize: 10000, Mode: Gather}, {Mode: Scatter},
	}}})
	require.NoError(t, err)
	plan, err := pl.Plan(&Batch{Messages: sizes(50, 50000), Limits: usual()})
	require.NoError(t, err)
	require.Equal(t, "scatter×1 + eager×1", plan.String())
	plan, err = pl.Plan(&Batch{Messages: sizes(50, 60, 20000, 70), Limits: usual()})
	require.NoError(t, err)
	require.Equal(t, "scatter×1 + gather×3", plan.String())
	require.Equal(t, WhyTable, plan.Why)
	require.Equal(t, []int32{0, 1, 3}, plan.Parts[1].Messages)
}

// The cache is allocated when enough plans were made, and then keeps shapes.
func TestCacheAfter(t *testing.T) {
	pl, err := NewPlanner(typical(t), &PlannerConfig{CacheAfter: 3})
	require.NoError(t, err)
	b := shapes()["heavy"](8)
	for i := range 4 {
		require.Equal(t, i >= 3, pl.ways != nil, "after %d plans", i)
		_, err := pl.Plan(b)
		require.NoError(t, err)
	}
	first, err := pl.Plan(b)
	require.NoError(t, err)
	again, err := pl.Plan(b)
	require.NoError(t, err)
	require.Same(t, first, again)
	require.NotSame(t, &pl.scratch.plan, again)
}

package logp

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// planner looks for the best plan, by however little it is better.
func planner(tb testing.TB, p *Params) *Planner {
	pl, err := NewPlanner(p, &PlannerConfig{Margin: -1})
	require.NoError(tb, err)
	return pl
}

// rounded is b with waits as a planner rounds them.
func rounded(b *Batch) *Batch {
	c := *b
	for m := range c.Wait {
		if c.Wait[m] != 0 {
			c.Wait[m] = coarse(c.Wait[m])
		}
	}
	return &c
}

// checkPlan checks what every plan must satisfy.
func checkPlan(tb testing.TB, p *Params, b *Batch, plan *Plan) {
	require.NoError(tb, checkParts(p, b, plan.Parts))
	c := p.PlanCost(rounded(b), plan.Parts)
	require.InEpsilon(tb, 1+c.Total(), 1+plan.Total, 1e-9, "%v: total", plan)
	for _, q := range plan.Parts {
		for _, i := range q.Messages {
			if m := b.Messages[i]; m.Flags&Urgent != 0 && p.Feasible(&b.Limits, m, Eager) == nil {
				require.Equal(tb, Eager, q.Mode)
			}
		}
	}
}

// singles returns the least cost of one mode for all, urgent ones apart.
func singles(p *Params, b *Batch) float64 {
	best := math.Inf(1)
	for m := range Mode(NumModes) {
		t, ok := tally{p: p, b: b}, true
		var urgent, rest []int32
		for i, x := range b.Messages {
			if x.Flags&Urgent != 0 && p.Feasible(&b.Limits, x, Eager) == nil {
				urgent = append(urgent, int32(i))
			} else {
				ok = ok && p.Feasible(&b.Limits, x, m) == nil
				rest = append(rest, int32(i))
			}
		}
		if !ok {
			continue
		}
		part := func(m Mode, idx []int32) {
			t.begin(m)
			for _, i := range idx {
				t.add(int(i))
			}
			t.end()
		}
		if len(urgent) > 0 {
			part(Eager, urgent)
		}
		for len(rest) > 0 {
			k := take(b, m, rest)
			if m == Gather { // urgent ones lie between
				for j := 1; j < k; j++ {
					if rest[j] != rest[j-1]+1 {
						k = j
					}
				}
			}
			part(m, rest[:k])
			rest = rest[k:]
		}
		c := t.cost()
		best = min(best, c.Total())
	}
	return best
}

// By default a plan of several modes is a tenth better than each of them alone, or
// there is none that could carry all.
func TestMixingMustGain(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(77, 1))
	var kept, dropped int
	for range cases(3000) {
		p, b := randParams(t, r), randBatch(r, 2+r.IntN(60))
		for i := range b.Messages {
			b.Messages[i].Flags &^= Urgent
		}
		pl, err := NewPlanner(p, nil)
		require.NoError(t, err)
		plan, err := pl.Plan(b)
		if err != nil {
			require.ErrorIs(t, err, ErrInfeasible)
			continue
		}
		checkPlan(t, p, b, plan)
		free, err := planner(t, p).Plan(b)
		require.NoError(t, err)
		best := singles(p, rounded(b))
		require.LessOrEqual(t, plan.Total, best+1e-6*math.Abs(best))
		modes := func(q *Plan) (set ModeSet) {
			for _, part := range q.Parts {
				set = set.With(part.Mode)
			}
			return set
		}
		several := func(s ModeSet) bool { return s != 0 && s&(s-1) != 0 }
		switch {
		case several(modes(plan)):
			require.LessOrEqual(t, plan.Total+0.1*math.Abs(plan.Total), best*(1+1e-9), "%v of %v", plan, b)
			kept++
		case several(modes(free)):
			dropped++
		}
	}
	require.Greater(t, kept, cases(40))
	require.Greater(t, dropped, cases(40))
}

func TestPlanIsNeverWorseThanOneMode(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(31, 1))
	var mixed, one, none int
	for range cases(4000) {
		p, b := randParams(t, r), randBatch(r, r.IntN(100))
		plan, err := planner(t, p).Plan(b)
		if err != nil {
			require.ErrorIs(t, err, ErrInfeasible)
			none++
			continue
		}
		checkPlan(t, p, b, plan)
		best := singles(p, rounded(b))
		require.LessOrEqual(t, plan.Total, best+1e-6*math.Abs(best), "%v of %v", plan, b)
		if plan.Why == WhySingle {
			one++
		} else {
			mixed++
		}
	}
	require.Greater(t, mixed, cases(400))
	require.Greater(t, one, cases(400))
	require.Less(t, none, cases(3000))
}

// brute returns the least cost over all partitions into parts and all modes:
// all set partitions, all assignments of modes to them.
func brute(p *Params, b *Batch) float64 {
	best := math.Inf(1)
	n := len(b.Messages)
	var parts []Part
	var walk func(i int)
	walk = func(i int) {
		if i == n {
			if inOrder(n, parts) != nil {
				return
			}
			c := p.PlanCost(b, parts)
			best = min(best, c.Total())
			return
		}
		x := b.Messages[i]
		modes := modesOf(p, &b.Limits, x)
		if x.Flags&Urgent != 0 && modes.Has(Eager) {
			modes = ModeSet(0).With(Eager)
		}
		for k := range parts { // join a part there is
			if !modes.Has(parts[k].Mode) {
				continue
			}
			parts[k].Messages = append(parts[k].Messages, int32(i))
			var r room
			ok := true
			for _, j := range parts[k].Messages {
				ok = r.fits(&b.Limits, b.Messages[j], parts[k].Mode) && ok
			}
			if ok {
				walk(i + 1)
			}
			parts[k].Messages = parts[k].Messages[:len(parts[k].Messages)-1]
		}
		for m := range Mode(NumModes) { // or begin one; one eager part is enough
			eager := m == Eager
			for k := range parts {
				eager = eager && parts[k].Mode != Eager
			}
			if modes.Has(m) && (m != Eager || eager) {
				parts = append(parts, Part{Mode: m, Messages: []int32{int32(i)}})
				walk(i + 1)
				parts = parts[:len(parts)-1]
			}
		}
	}
	walk(0)
	return best
}

// The family of plans that is searched holds the optimum nearly always, and
// never misses it by much.
func TestPlanAgainstAllPartitions(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(32, 1))
	var optimal, count int
	worst, sum := 0.0, 0.0
	for range cases(2000) {
		p, b := randParams(t, r), rounded(randBatch(r, 1+r.IntN(6)))
		for i := range b.Messages { // their cost depends on the order in a part, too
			b.Messages[i].Flags &^= Joined
		}
		plan, err := planner(t, p).Plan(b)
		if err != nil {
			require.ErrorIs(t, err, ErrInfeasible)
			continue
		}
		best := brute(p, b)
		require.GreaterOrEqual(t, plan.Total, best*(1-1e-9), "better than the best: the model disagrees with itself")
		excess := plan.Total/best - 1
		count++
		if excess < 1e-9 {
			optimal++
		}
		sum += max(excess, 0)
		if excess > worst {
			worst = excess
			t.Logf("%.1f%% over: %v for %+v", 100*excess, plan, b)
		}
	}
	t.Logf("%d plans, %.1f%% optimal, mean excess %.3f%%, worst %.1f%%", count, 100*float64(optimal)/float64(count), 100*sum/float64(count), 100*worst)
	require.Greater(t, float64(optimal)/float64(count), 0.9)
	require.Less(t, sum/float64(count), 0.005)
	require.Less(t, worst, 0.5)
}

func shapes() map[string]func(n int) *Batch {
	r := rand.New(rand.NewPCG(99, 1))
	return map[string]func(n int) *Batch{
		"uniform": func(n int) *Batch { return &Batch{Messages: uniform(n, 64), Limits: usual()} },
		"heavy": func(n int) *Batch {
			b := &Batch{Limits: usual(), Messages: make([]Message, n)}
			for i := range b.Messages {
				b.Messages[i] = Message{Size: randSize(r), Flags: Registered | DestRegistered}
			}
			return b
		},
		"ring": func(n int) *Batch { // larger than it
			b := &Batch{Limits: usual(), Messages: make([]Message, n)}
			ring(&b.Limits, 64)
			for i := range b.Messages {
				b.Messages[i] = Message{Size: randSize(r), Flags: Registered | DestRegistered}
			}
			return b
		},
		"flags": func(n int) *Batch {
			b := &Batch{Limits: usual(), Messages: make([]Message, n)}
			for i := range b.Messages {
				m := &b.Messages[i]
				if *m = (Message{Size: randSize(r), Flags: Flags(r.IntN(knownFlags + 1))}); m.Size > b.Limits.EagerMax {
					m.Flags &^= Apart
				}
			}
			return b
		},
	}
}

func typical(tb testing.TB) *Params {
	r := rand.New(rand.NewPCG(98, 1))
	p := randParams(tb, r)
	p.R = grid(tb, r, 3000, 0.05)
	return p
}

// The order in which messages were handed over hardly changes what the plan costs
// (where no read covers neighbours), the unit of time does not.
func TestPlanMetamorphic(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(33, 1))
	moved, count := 0.0, 0.0
	for range cases(500) {
		p, b := randParams(t, r), randBatch(r, 1+r.IntN(12))
		for i := range b.Messages {
			b.Messages[i].Flags &^= Joined
		}
		pl := planner(t, p)
		plan, err := pl.Plan(b)
		if err != nil {
			continue
		}
		want := plan.Total
		c := *b
		c.Messages = append([]Message(nil), b.Messages...)
		r.Shuffle(len(c.Messages), func(i, j int) { c.Messages[i], c.Messages[j] = c.Messages[j], c.Messages[i] })
		plan, err = pl.Plan(&c)
		require.NoError(t, err)
		// What lies together in a gather follows the order, and so does what limits
		// cut.
		require.InEpsilon(t, want, plan.Total, 0.5)
		moved += math.Abs(plan.Total/want - 1)
		count++

		d := *b
		for m := range d.Wait {
			d.Wait[m] = 8 * coarse(d.Wait[m])
		}
		plan, err = planner(t, times(t, p, 8)).Plan(&d)
		require.NoError(t, err)
		require.InEpsilon(t, 8*want, plan.Total, 1e-9)

		d = *b
		d.Wait[r.IntN(NumModes)] += 10000 * r.Float64()
		plan, err = pl.Plan(&d)
		require.NoError(t, err)
		require.GreaterOrEqual(t, plan.Total, want*(1-noise), "waiting longer is no gain")
	}
	require.Less(t, moved/count, 0.02)
}

func TestSwitches(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(91, 1))
	var found int
	for range 200 {
		p, l := randParams(t, r), randLimits(r)
		n := 1 + r.IntN(8)
		choose := func(size int64) (Mode, bool) {
			d, err := p.Choose(&Batch{Messages: uniform(n, size), Limits: l})
			return d.Mode, err == nil
		}
		ss := p.Switches(&l, n, Registered|DestRegistered, 1<<20)
		last := int64(0)
		for _, s := range ss {
			require.Greater(t, s.Size, last)
			before, ok := choose(s.Size - 1)
			require.True(t, ok)
			require.Equal(t, s.From, before)
			after, ok := choose(s.Size)
			require.True(t, ok)
			require.Equal(t, s.To, after)
			require.NotEqual(t, s.From, s.To)
			last = s.Size
			found++
		}
		// Between two switches nothing changes for longer than is promised.
		for range 20 {
			size := int64(r.IntN(1 << 20))
			got, ok := choose(size)
			if !ok || len(ss) == 0 || size < ss[0].Size {
				continue
			}
			want := ss[0].To
			for _, s := range ss {
				if s.Size <= size {
					want = s.To
				}
			}
			if got != want { // a short stretch, then
				a, _ := choose(size - size/4)
				b, _ := choose(size + size/4)
				require.False(t, a == got && b == got, "missed %v around %d: %v", got, size, ss)
			}
		}
	}
	require.Greater(t, found, 100)
	require.Empty(t, thesis(t).Switches(&Limits{EagerMax: -1}, 1, 0, 100), "nothing is possible")
}

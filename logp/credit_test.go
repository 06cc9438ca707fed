package logp

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A batch that fits the ring costs what it costs without one.
func TestARingThatIsLargeEnoughCostsNothing(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(91, 1))
	for range cases(1000) {
		p, b := randParams(t, r), randBatch(r, 1+r.IntN(30))
		b.Limits.Ring, b.Limits.Credit = 0, 0
		fits := *b
		fits.Limits.Ring, fits.Limits.Credit = MaxSize, MaxSize/2
		for m := range Mode(NumModes) {
			c, err := p.Cost(b, m)
			d, err2 := p.Cost(&fits, m)
			require.Equal(t, err, err2)
			require.Equal(t, c, d)
		}
		plan, err := planner(t, p).Plan(b)
		other, err2 := planner(t, p).Plan(&fits)
		require.Equal(t, err, err2)
		if err == nil {
			require.Equal(t, plan.Parts, other.Parts)
			require.InEpsilon(t, 1+plan.Total, 1+other.Total, 1e-9)
		}
	}
}

// A larger ring is never predicted slower.
func TestALargerRingIsNeverSlower(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(92, 1))
	stalls := 0
	for range cases(2000) {
		p, b := randParams(t, r), randBatch(r, 1+r.IntN(200))
		// What may be written at once stays: only the room grows.
		b.Limits.EagerMax, b.Limits.GatherMax = 4080, 6*4096
		for i := range b.Messages {
			b.Messages[i].Size %= 4000
		}
		before := [NumModes]float64{}
		for blocks := int64(16); blocks <= 1024; blocks *= 2 {
			ring(&b.Limits, blocks)
			for m := range Mode(NumModes) {
				c, err := p.Cost(b, m)
				if err != nil {
					continue
				}
				if blocks > 16 {
					require.LessOrEqual(t, c.Total(), before[m]*(1+1e-9), "%v, %d blocks", m, blocks)
				}
				before[m] = c.Total()
				if c.Terms[TermCredit] > b.Wait[m] {
					stalls++
					require.NotEqual(t, Scatter, m)
				}
			}
		}
	}
	require.Greater(t, stalls, cases(1000))
}

// One more message of a size never makes a batch cheaper, ring or no ring.
func TestMoreMessagesInARing(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(93, 1))
	for range cases(200) {
		p, b := randParams(t, r), randBatch(r, 1)
		ring(&b.Limits, 64)
		b.Messages[0].Size = min(b.Messages[0].Size, b.Limits.GatherMax/2)
		before := [NumModes]float64{}
		for range 100 {
			b.Messages = append(b.Messages, b.Messages[0])
			for m := range Mode(NumModes) {
				if c, err := p.Cost(b, m); err == nil {
					require.GreaterOrEqual(t, c.Total(), before[m]*(1-1e-9), "%v × %d of %+v", m, len(b.Messages), b.Messages[0])
					before[m] = c.Total()
				}
			}
		}
	}
}

// The numbers of docs/model.md: a ring of 64 blocks of 8 KiB lends 56, and says so
// every 32.
func TestStallsByHand(t *testing.T) {
	t.Parallel()
	p := thesis(t)
	p.CPU = Posting{A: 100, B: 20}
	l := usual()
	l.EagerBlock = 8192
	ring(&l, 64)
	require.EqualValues(t, 56*8192, l.Ring)
	trip := 100 + 20 + p.Os.At(8) + p.Ls + 100 + p.Ls
	for _, c := range []struct {
		n     int
		turns float64
	}{{56, 0}, {57, 1}, {88, 1}, {89, 2}, {120, 2}, {128, 3}} {
		cost, err := p.Cost(&Batch{Messages: uniform(c.n, 64), Limits: l}, Eager)
		require.NoError(t, err)
		require.InDelta(t, c.turns*trip, cost.Terms[TermCredit], 1e-6, "%d messages", c.n)
	}
	// While credit is on its way the receiver works on 24 blocks.
	p.Or = line(t, 30, 0, 0)
	cost, err := p.Cost(&Batch{Messages: uniform(88, 64), Limits: l}, Eager)
	require.NoError(t, err)
	require.InDelta(t, trip-24*30, cost.Terms[TermCredit], 1e-6)
	// Operations of 25 blocks: two fill the window, and only then is credit due.
	var f flow
	for range 5 {
		f.put(25 * 8192)
	}
	require.InDelta(t, 2*trip, l.stall(trip, &f), 1e-6)
}

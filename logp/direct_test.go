package logp

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// A known destination saves descriptor, request, the hard latency and a soft one.
func TestDirect(t *testing.T) {
	p := thesis(t)
	l := usual()
	for _, size := range []int64{0, 64, 4096, 1 << 20} {
		x := Message{Size: size, Flags: Registered | DestRegistered}
		d := p.Direct(x)
		b := Batch{Messages: []Message{x}, Limits: l}
		s, err := p.Cost(&b, Scatter)
		require.NoError(t, err)
		saved := p.CPU.A + p.Os.At(int64(l.DescSegment+l.Header)) + p.Os.At(int64(l.ReadRequest)) + p.Or.At(int64(l.DescSegment+l.Header)) + p.Ls + p.Lh
		more := p.Os.At(doneBytes) + p.G + p.Or.At(doneBytes)
		require.InDelta(t, s.Total()-saved+more, d.Total(), 1e-6*s.Total(), "%d bytes", size)
		require.Equal(t, 2, d.Ops)
		require.Zero(t, d.Reads)

		plain := p.Direct(Message{Size: size})
		require.InDelta(t, d.Total()+p.R.At(size), plain.Total(), 1e-6)
	}
	require.Zero(t, testing.AllocsPerRun(10, func() { _ = p.Direct(Message{Size: 100}) }))
}

// From the switch on a direct write is cheaper than the ring, below it is not.
func TestDirectFrom(t *testing.T) {
	t.Parallel()
	p, l := thesis(t), plain()
	require.Equal(t, int64(MaxSize), p.DirectFrom(&l, Registered|DestRegistered), "where copies cost nothing")
	p.C = mustCurve(t, Point{0, 10, 1}, Point{1 << 20, 100000, 1})
	from := p.DirectFrom(&l, Registered|DestRegistered)
	require.Positive(t, from)
	ring := func(n int64) float64 {
		b := Batch{Messages: []Message{{Size: n, Flags: Registered | DestRegistered}}, Limits: l}
		c, err := p.Cost(&b, Gather)
		require.NoError(t, err)
		if e, err := p.Cost(&b, Eager); err == nil {
			return min(e.Total(), c.Total())
		}
		return c.Total()
	}
	direct := func(n int64) float64 { c := p.Direct(Message{Size: n, Flags: Registered}); return c.Total() }
	require.Less(t, direct(from), ring(from))
	require.GreaterOrEqual(t, direct(from*3/4), ring(from*3/4))
	few := usual()
	from = p.DirectFrom(&few, Registered|DestRegistered)
	require.LessOrEqual(t, from, few.GatherMax, "what the ring cannot carry")
}

func TestAddDirect(t *testing.T) {
	t.Parallel()
	p, l := thesis(t), usual()
	pl, err := NewPlanner(p, nil)
	require.NoError(t, err)
	e, err := pl.Explain(&Batch{Messages: uniform(2, 64), Limits: l})
	require.NoError(t, err)
	require.NotContains(t, e.String(), "written")
	e.AddDirect(p, uniform(3, 1<<16))
	one := p.Direct(uniform(1, 1<<16)[0])
	require.InDelta(t, 3*one.Total()-2*p.CPU.A-2*p.Ls+2*p.G, e.Written.Cost.Total(), 1e-6)
	require.Equal(t, 6, e.Written.Cost.Ops)
	require.Contains(t, e.String(), "3 messages, 196608 bytes, written where their receivers want them")
	b, err := json.Marshal(e)
	require.NoError(t, err)
	require.Contains(t, string(b), `"written":{"messages":3,"bytes":196608,"total_ns":`)
}

package logp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The costs of both ways are the formulas of the comment, and the cheaper one is taken.
func TestPieces(t *testing.T) {
	p := thesis(t)
	n, bytes, list := 64, int64(4096), int64(512)
	m, f := bytes/int64(n), float64(n)
	answer := func(s int64) float64 { return p.G + p.CPU.A + p.CPU.B + p.Os.At(s) + p.Or.At(0) + p.Ls }
	for _, get := range []bool{false, true} {
		x := Pieces{N: n, Bytes: bytes, List: list, Get: get}
		chain := p.CPU.A + f*p.CPU.B + f*p.Os.At(m) + (f-1)*p.G + p.Lh
		out, back := bytes+list, int64(0)
		if get {
			chain += f*p.Os.At(readRequest) + p.Ls
			out, back = list, bytes
		}
		group := p.CPU.A + p.CPU.B + p.Os.At(out) + p.Or.At(out) + 2*f*p.C.At(m) + p.Ls + answer(back)
		pp := x.Plan(p, Lateness{})
		require.InDelta(t, chain, pp.Costs[Chain].Total(), 1e-6)
		require.InDelta(t, group, pp.Costs[Group].Total(), 1e-6)
		require.Equal(t, Group, pp.Way)
		require.Equal(t, Chain, x.Plan(p, Lateness{Group: chain}).Way, "the target has been late")
		require.Equal(t, Chain, Pieces{N: 1, Bytes: 64, Get: get}.Plan(p, Lateness{}).Way)
		late := x.Plan(p, Lateness{Chain: 3, Group: 1.5 * chain})
		require.InDelta(t, 3*chain, late.Costs[Chain].Total(), 1e-6)
		require.InDelta(t, group+1.5*chain, late.Costs[Group].Total(), 1e-6)
		require.Equal(t, Group, late.Way, "chains have been slower")
		require.Zero(t, Pieces{Get: get}.Cost(p, Group).Ops)
	}
	require.Equal(t, "way(7)", Way(7).String())
}

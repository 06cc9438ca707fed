package rdv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
)

// typed reports whether err is one that callers can branch on.
func typed(err error) bool {
	for _, want := range []error{
		ErrClosed, ErrProtocol, fabric.ErrPeerGone, fabric.ErrFlushed, fabric.ErrRemoteOp, fabric.ErrRemoteAccess,
		fabric.ErrDown, fabric.ErrClosed, fabric.ErrLocalProtection,
	} {
		if errors.Is(err, want) {
			return true
		}
	}
	return false
}

// faults are what may happen to a script in its middle; x is one of its sides.
var faults = []struct {
	name string
	play func(rng *rand.Rand, x *app)
}{
	{"failed request", func(rng *rand.Rand, x *app) { x.s.link.(*sim.Link).FailAt(1+rng.Uint64N(8), fabric.StatusRemoteOp) }},
	{"refused request", func(rng *rand.Rand, x *app) { x.s.link.(*sim.Link).FailAt(1+rng.Uint64N(8), fabric.StatusRemoteAccess) }},
	{"death", func(_ *rand.Rand, x *app) { x.s.link.(*sim.Link).Kill() }},
	{"endpoint closed", func(_ *rand.Rand, x *app) { _ = x.s.ep.Close(); x.s.ch.Sever(nil) }},
	{"forged source key", func(_ *rand.Rand, x *app) { x.forge = 0x5a5a5a5a }},
}

// Whatever fails and whenever: everything that was begun ends exactly once, with
// a typed error, and memory that was given back is not touched any more.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, f := range faults {
		for _, nw := range networks {
			t.Run(f.name+"/"+nw.name, func(t *testing.T) {
				t.Parallel()
				for seed := range rounds(6) {
					o := nw.opt
					o.Seed = seed
					o.TargetFails = seed%2 == 0
					if !t.Run(fmt.Sprint(seed), func(t *testing.T) { faulty(t, o, seed, f.play) }) {
						return
					}
				}
			})
		}
	}
}

func faulty(t *testing.T, o sim.Options, seed uint64, play func(*rand.Rand, *app)) {
	rng := rand.New(rand.NewPCG(seed, 12))
	a, b := apps(t, simLinks(o), seed, randomOptions(rng), randomOptions(rng))
	a.failing, b.failing = true, true
	when := rng.IntN(300)
	for i := range 400 {
		x := a
		if rng.IntN(2) == 0 {
			x = b
		}
		x.step()
		if i == when {
			play(rng, x)
		}
	}
	// Where the endpoint is down nothing needs to be told: polling is enough.
	for range 300 {
		for _, x := range []*app{a, b} {
			x.s.poll()
			_, _ = x.s.ch.Progress()
		}
	}
	for _, x := range []*app{a, b} {
		if x.s.ch.severed {
			x.over(t)
		}
	}
	hangUp(t, a.s, b.s)
	for _, x := range []*app{a, b} {
		x.over(t)
		require.Error(t, x.s.ch.Err())
		for token, err := range x.ended {
			require.True(t, err == nil || typed(err) || errors.Is(err, ErrRefused) || errors.Is(err, ErrCancelled) || errors.Is(err, ErrDeclined), "token %d: %v", token, err)
		}
		require.Equal(t, int(x.last), len(x.ended))
		x.intact()
	}
}

// over checks that nothing is outstanding and all memory is the app's again.
func (a *app) over(t *testing.T) {
	require.Zero(t, a.outstanding(), "%+v", a.s.ch.Stats())
	require.Len(t, a.src.free, cells)
	require.Len(t, a.dst.free, cells)
}

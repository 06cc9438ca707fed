package eager

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
)

func unordered(name string) fabric.Caps {
	c := sim.CapsLike(name)
	c.LastByteLast = false
	return c
}

func inline(name string, n int) fabric.Caps {
	c := sim.CapsLike(name)
	c.MaxInline = n
	return c
}

// networks are what the protocol must work on, whatever it does with the
// liberties of the contract.
var networks = []struct {
	name string
	opt  sim.Options
}{
	{"plain", sim.Options{}},
	{"like ibv", sim.Options{Caps: sim.CapsLike("ibv")}},
	{"like tcp", sim.Options{Caps: sim.CapsLike("tcp")}},
	{"no inline", sim.Options{Caps: inline("ibv", 0), MaxDelay: 6, MaxCompletionDelay: 9, Pieces: 5}},
	{"16 bytes inline", sim.Options{Caps: inline("sim", 16), MaxDelay: 3, Pieces: 4, QueueFull: 0.3}},
	{"delay", sim.Options{MaxDelay: 5, MaxCompletionDelay: 7}},
	{"late completions", sim.Options{MaxCompletionDelay: 40, Caps: sim.CapsLike("tcp")}},
	{"pieces", sim.Options{Pieces: 15}},
	{"pieces, no order inside", sim.Options{Pieces: 15, Caps: unordered("ibv")}},
	{"full queue", sim.Options{QueueFull: 0.7, Caps: sim.CapsLike("ibv")}},
	{"everything", sim.Options{MaxDelay: 3, MaxCompletionDelay: 3, QueueFull: 0.3, Pieces: 7, Caps: inline("ibv", 64)}},
	{"everything, no order inside", sim.Options{MaxDelay: 3, MaxCompletionDelay: 3, QueueFull: 0.3, Pieces: 7, Caps: unordered("tcp")}},
}

// Whatever the ring, the mode and the network: the same messages in the same
// order, both ways.
func TestRandomScripts(t *testing.T) {
	eachNetwork(t, 12, 3, func(t *testing.T, o sim.Options) {
		seed := o.Seed
		rng := rand.New(rand.NewPCG(seed, 5))
		if seed%3 != 0 {
			o.Caps.MaxSGE = 1 + rng.IntN(7)
		}
		caps := o.Caps
		oa, ob := randomOptions(rng, caps), randomOptions(rng, caps)
		ok := t.Run(fmt.Sprintf("%d/%s/%s", seed, name(oa), name(ob)), func(t *testing.T) {
			a, b := pair(t, simLinks(o), oa, ob)
			s := newScript(t, seed, a, b)
			s.run(1200)
			require.Positive(t, s.got)
		})
		require.True(t, ok)
	})
}

// eachNetwork calls f for every network with seeds from 0 on, as many as rounds or, in a short
// run, short.
func eachNetwork(t *testing.T, rounds, short uint64, f func(t *testing.T, o sim.Options)) {
	t.Parallel()
	if testing.Short() {
		rounds = short
	}
	for _, nw := range networks {
		t.Run(nw.name, func(t *testing.T) {
			t.Parallel()
			for seed := range rounds {
				o := nw.opt
				o.Seed = seed
				if o.Caps == (fabric.Caps{}) {
					o.Caps = sim.CapsLike("sim")
				}
				f(t, o)
			}
		})
	}
}

// FuzzScript lets the fuzzer choose network, rings and script.
func FuzzScript(f *testing.F) {
	fuzzNetworks(f, 31, 8, func(t *testing.T, seed uint64, rng *rand.Rand, o sim.Options, oa, ob Options) {
		a, b := pair(t, simLinks(o), oa, ob)
		newScript(t, seed, a, b).run(400)
	})
}

// fuzzNetworks lets the fuzzer choose a network and the rings of both sides for run. step
// spreads the first seeds, and stream tells the random numbers of one target from another's.
func fuzzNetworks(f *testing.F, step, stream uint64, run func(t *testing.T, seed uint64, rng *rand.Rand, o sim.Options, oa, ob Options)) {
	for i := range networks {
		f.Add(uint64(i)*step, uint8(i))
	}
	f.Fuzz(func(t *testing.T, seed uint64, network uint8) {
		rng := rand.New(rand.NewPCG(seed, stream))
		o := networks[int(network)%len(networks)].opt
		o.Seed = seed
		caps := o.Caps
		if caps == (fabric.Caps{}) {
			caps = sim.CapsLike("sim")
		}
		oa := randomOptions(rng, caps)
		run(t, seed, rng, o, oa, randomOptions(rng, caps))
	})
}

package rdv

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
)

// step lets one side do something at random.
func (a *app) step() {
	require.LessOrEqual(a.t, a.s.ch.reads, a.s.link.Caps().MaxReads)
	switch a.rng.IntN(9) {
	case 0:
		a.send()
	case 1:
		switch a.rng.IntN(4) {
		case 0:
			a.sendUnregistered()
		case 1:
			a.advertise()
		case 2:
			a.answer()
		case 3:
			a.send()
		}
	case 2:
		a.acceptOne()
	case 3:
		a.s.ch.Hold()
		for range 1 + a.rng.IntN(3) {
			a.acceptOne()
		}
		a.s.ch.Release()
	case 4, 5, 6:
		a.s.poll()
	default:
		_, err := a.s.ch.Progress()
		if err != nil {
			require.True(a.t, a.failing, "%v", err)
		}
	}
}

// drain finishes everything; nobody begins anything new.
func drain(t testing.TB, xs ...*app) {
	end := time.Now().Add(testutil.Limit)
	for k := 0; ; k++ {
		left := 0
		for _, x := range xs {
			x.s.poll()
			_, err := x.s.ch.Progress()
			require.NoError(t, err)
			x.acceptOne()
			x.answer()
			left += x.outstanding()
			if !x.s.ch.Idle() {
				left++
			}
		}
		if left == 0 {
			break
		}
		if k&255 == 255 && time.Now().After(end) {
			require.Fail(t, "stuck", "%+v %+v; %+v %+v", xs[0].s.ch.Stats(), xs[0].count, xs[1].s.ch.Stats(), xs[1].count)
		}
	}
	for _, x := range xs {
		x.intact()
		require.Len(t, x.src.free, cells)
		require.Len(t, x.dst.free, cells)
		for seq := range x.peer.sizes {
			require.NotZero(t, x.results[seq], "message %d got lost", seq)
		}
	}
}

func randomOptions(rng *rand.Rand) Options {
	o := Options{
		Transfers: 1 + rng.IntN(8), Messages: 8, Regions: maxRegions, Chunk: 200 + rng.IntN(3000), IDTag: uint16(rng.IntN(1000)),
		Ring: eager.Options{Blocks: 8 << rng.IntN(3), BlockSize: 128, Imm: rng.Uint32(), Depth: 16 << rng.IntN(3), Batch: 8 + rng.IntN(9)},
	}
	o.Adverts, o.Chunks = 1+rng.IntN(5), 1+rng.IntN(5)
	o.Staging, o.FirstChunk = 600+rng.IntN(8000), 100+rng.IntN(1000)
	if rng.IntN(2) == 0 {
		o.CopyRate, o.RegisterRate, o.LinkRate = rng.Float64()*9, rng.Float64()*9, 1+rng.Float64()
	}
	if o.Carry = -1; rng.IntN(4) > 0 {
		o.Carry = 1 + rng.IntN(1000)
	}
	o.Ring.Control = 4
	o.Ring.Every = 1 + rng.IntN(o.Ring.Blocks-4)
	return o
}

func caps(name string, change func(*fabric.Caps)) fabric.Caps {
	c := sim.CapsLike(name)
	change(&c)
	return c
}

// mapped makes a link one whose memory peers map, see words.
func mapped(c *fabric.Caps) { c.AtomicCPU, c.MapsAlloc = true, true }

// networks are what the protocol must work on.
var networks = []struct {
	name string
	opt  sim.Options
}{
	{"plain", sim.Options{}},
	{"like ibv", sim.Options{Caps: sim.CapsLike("ibv")}},
	{"like tcp", sim.Options{Caps: sim.CapsLike("tcp")}},
	{"one read, one piece", sim.Options{Caps: caps("ibv", func(c *fabric.Caps) { c.MaxReads, c.MaxSGE = 1, 1 }), MaxDelay: 3}},
	{"small messages", sim.Options{Caps: caps("sim", func(c *fabric.Caps) { c.MaxMessage = 4096; c.MaxSGE = 3 }), MaxCompletionDelay: 5}},
	{"delay", sim.Options{MaxDelay: 5, MaxCompletionDelay: 7, Caps: sim.CapsLike("ibv")}},
	{"overtaken reads", sim.Options{Overtake: 0.5, MaxDelay: 2, Caps: sim.CapsLike("ibv")}},
	{"full queue", sim.Options{QueueFull: 0.7, Caps: sim.CapsLike("ibv")}},
	{"no inline", sim.Options{Caps: caps("ibv", func(c *fabric.Caps) { c.MaxInline = 0 }), MaxDelay: 6, MaxCompletionDelay: 9, Pieces: 5}},
	{"mapped", sim.Options{Caps: caps("ibv", mapped), MaxDelay: 4, MaxCompletionDelay: 4}},
	{"everything", sim.Options{MaxDelay: 3, MaxCompletionDelay: 3, QueueFull: 0.3, Pieces: 7, Overtake: 0.3,
		Caps: caps("tcp", func(c *fabric.Caps) { c.LastByteLast = false })}},
}

// rounds is how many seeds are played: n, fewer where everything takes longer.
func rounds(n uint64) uint64 {
	if testing.Short() || testutil.Race {
		return (n + 3) / 4
	}
	return n
}

// Whatever the network and the options: every message arrives once and whole, or
// both sides know why not.
func TestRandomScripts(t *testing.T) {
	t.Parallel()
	for _, nw := range networks {
		t.Run(nw.name, func(t *testing.T) {
			t.Parallel()
			for seed := range rounds(10) {
				rng := rand.New(rand.NewPCG(seed, 5))
				o := nw.opt
				o.Seed = seed
				if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
					script(t, simLinks(o), seed, randomOptions(rng), randomOptions(rng), 1500)
				}) {
					return
				}
			}
		})
	}
}

func script(t testing.TB, open opener, seed uint64, oa, ob Options, steps int) {
	a, b := apps(t, open, seed, oa, ob)
	rng := rand.New(rand.NewPCG(seed, 6))
	for range steps {
		if rng.IntN(2) == 0 {
			a.step()
		} else {
			b.step()
		}
	}
	drain(t, a, b)
	require.Positive(t, a.count.received+b.count.received)
	require.NoError(t, a.s.ch.Err())
	require.NoError(t, b.s.ch.Err())
}

func TestScriptsOverRealLinks(t *testing.T) {
	for link, open := range realLinks {
		t.Run(link, func(t *testing.T) { overLink(t, open) })
	}
}

func overLink(t *testing.T, open opener) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 7))
		script(t, open, seed, randomOptions(rng), randomOptions(rng), 2000)
	}
}

// FuzzScript lets the fuzzer choose network, options and script.
func FuzzScript(f *testing.F) {
	for i := range networks {
		f.Add(uint64(i)*37, uint8(i))
	}
	f.Fuzz(func(t *testing.T, seed uint64, network uint8) {
		rng := rand.New(rand.NewPCG(seed, 8))
		o := networks[int(network)%len(networks)].opt
		o.Seed = seed
		script(t, simLinks(o), seed, randomOptions(rng), randomOptions(rng), 400)
	})
}

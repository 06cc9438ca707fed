package sim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/fabrictest"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

func factory(o Options) fabrictest.Factory {
	return fabrictest.Factory{
		Open: func(tb testing.TB) (fabric.Link, fabric.Link) {
			n := NewNetwork(o)
			a, err := n.NewLink()
			require.NoError(tb, err)
			b, err := n.NewLink()
			require.NoError(tb, err)
			return a, b
		},
		Kill:     func(_ testing.TB, l fabric.Link) { l.(*Link).Kill() },
		IdleDown: true,
	}
}

// variants are networks that use the liberties of the contract in different ways. The
// suite, and so every protocol, must pass on all of them.
var variants = []struct {
	name string
	opt  Options
}{
	{"plain", Options{}},
	{"like ibv", Options{Caps: CapsLike("ibv"), TargetFails: true}},
	{"like shm", Options{Caps: CapsLike("shm")}},
	{"like tcp", Options{Caps: CapsLike("tcp"), ConnectWaits: true}},
	{"delay", Options{Seed: 1, MaxDelay: 5, MaxCompletionDelay: 7}},
	{"late completions", Options{Seed: 2, MaxCompletionDelay: 20, Caps: CapsLike("tcp")}},
	{"pieces", Options{Seed: 3, Pieces: 9}},
	{"pieces, no order inside", Options{Seed: 4, Pieces: 15, Caps: unordered("ibv")}},
	{"overtaking", Options{Seed: 5, Overtake: 0.5, MaxDelay: 2}},
	{"feigned full queue", Options{Seed: 6, QueueFull: 0.6}},
	{"everything", Options{Seed: 7, MaxDelay: 3, MaxCompletionDelay: 3, QueueFull: 0.2, Pieces: 5, Overtake: 0.3, TargetFails: true, ConnectWaits: true}},
	{"everything, like tcp", Options{Seed: 8, MaxDelay: 3, MaxCompletionDelay: 3, QueueFull: 0.2, Pieces: 5, Overtake: 0.3, ConnectWaits: true, Caps: unordered("tcp")}},
}

// unordered returns CapsLike without LastByteLast.
func unordered(name string) fabric.Caps {
	c := CapsLike(name)
	c.LastByteLast = false
	return c
}

func TestConformance(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			f := factory(v.opt)
			if v.opt != (Options{}) {
				f.Slow = 3
			}
			if v.opt.QueueFull > 0 {
				f.FullQueue = "Options.QueueFull"
			}
			fabrictest.Run(t, f)
		})
	}
}

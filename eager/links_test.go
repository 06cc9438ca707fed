package eager

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/shm"
	"github.com/seed33544411/rma/fabric/tcp"
)

// realLinks are the links of this host with the channel's promises put to the
// test; ibv is in ibv_test.go.
var realLinks = map[string]opener{
	"shm": two(func() (fabric.Link, error) { return shm.Open(shm.Options{}) }),
	"shm without segments": two(func() (fabric.Link, error) {
		return shm.Open(shm.Options{DisableSegments: true})
	}),
	"shm by bounce": two(func() (fabric.Link, error) {
		return shm.Open(shm.Options{DisableSegments: true, DisableCMA: true})
	}),
	"tcp": two(func() (fabric.Link, error) { return tcp.Open(nil) }),
}

// The random scripts of TestRandomScripts over what is real, in both modes.
func TestScriptsOverRealLinks(t *testing.T) {
	for link, open := range realLinks {
		t.Run(link, func(t *testing.T) {
			short, packed, taken := overLink(t, open)
			require.Positive(t, taken, "messages received by Short")
			require.Equal(t, link == "shm", short > 0, "messages that went without requests")
			require.Equal(t, link == "shm", packed > 0, "messages that share a block")
		})
	}
}

func overLink(t *testing.T, open opener) (short, packed, taken int) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 6))
		for _, mode := range []Mode{ModeLap, ModeCursor} {
			a, _ := open(t)
			oa, ob := randomOptions(rng, a.Caps()), randomOptions(rng, a.Caps())
			oa.Mode, ob.Mode = mode, mode
			t.Run(fmt.Sprintf("%d/%s/%s", seed, name(oa), name(ob)), func(t *testing.T) {
				a, b := pair(t, open, oa, ob)
				s := newScript(t, seed, a, b)
				s.run(1500)
				require.Positive(t, s.got)
				short += s.short
				packed += s.packed
				taken += s.taken
			})
		}
	}
	return short, packed, taken
}

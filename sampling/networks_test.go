package sampling

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
)

// Every liberty that a link may take: the protocol needs none of them.
func TestOddNetworks(t *testing.T) {
	caps := func(like string, change func(*fabric.Caps)) fabric.Caps {
		c := sim.CapsLike(like)
		if change != nil {
			change(&c)
		}
		return c
	}
	for name, o := range map[string]sim.Options{
		"plain writes wake nobody":   {Caps: caps("ibv", nil)},
		"the target does the work":   {Caps: caps("tcp", nil)},
		"nothing goes inline":        {Caps: caps("ibv", func(c *fabric.Caps) { c.MaxInline = 0 })},
		"no order inside a write":    {Caps: caps("sim", func(c *fabric.Caps) { c.LastByteLast = false }), Pieces: 8},
		"delay":                      {MaxDelay: 5, MaxCompletionDelay: 5},
		"the queue is often full":    {QueueFull: 0.3},
		"reads overtaken, slow, odd": {Overtake: 0.5, MaxDelay: 3, QueueFull: 0.2, Pieces: 4, Caps: caps("tcp", nil)},
	} {
		t.Run(name, func(t *testing.T) {
			o.Seed = 5
			dir := &Store{Dir: t.TempDir()}
			for range 2 { // the second time from the profile, if it is plausible
				opt := Options{MaxSize: 1 << 14, Budget: 200 * time.Millisecond, StepTimeout: 30 * time.Second, Store: dir}
				a, b := sessions(t, simLinks(o), opt, opt)
				r, rb := agreed(t, a, b)
				savedUnlessUnsure(t, r, rb)
				require.NotEqual(t, FromDefaults, r.Source)
			}
		})
	}
}

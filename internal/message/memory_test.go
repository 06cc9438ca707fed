package message

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/linktest"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/sampling"
)

// tally counts messages that have ended.
type tally int

func (n *tally) Complete(uint32, int, error) { *n++ }

// What a side of an engine holds for a peer that it exchanges small messages with: rings,
// mirrors, and the memory of the channel itself, without its endpoint and without what all
// channels of a link share.
func TestMemoryOfAPeerWithMessages(t *testing.T) {
	const peers = 64
	la, lb := simLinks(sim.Options{})(t)
	var before, after runtime.MemStats
	type end struct {
		ep fabric.Endpoint
		ch *Channel
	}
	var ends []end
	params := sampling.Defaults("sim")
	pins := map[fabric.Link]*Pins{}
	for _, l := range []fabric.Link{la, lb} {
		p, err := NewPins(l, 0)
		require.NoError(t, err)
		pins[l] = p
	}
	open := func(l fabric.Link, ep fabric.Endpoint, b *eager.Budget) *Channel {
		ch, err := Open(l, ep, Options{Rings: b, SmallRings: true, From: len(ends), Params: &params, Pins: pins[l], Learn: DefaultLearn})
		require.NoError(t, err)
		ends = append(ends, end{ep, ch})
		return ch
	}
	type pairOf struct{ a, b fabric.Endpoint }
	var eps []pairOf
	for i := range peers {
		a, b := linktest.Join(t, la, lb, fabric.EndpointOptions{ID: uint32(i)})
		eps = append(eps, pairOf{a, b})
	}
	runtime.GC()
	runtime.GC() // what pools hold goes with the second
	runtime.ReadMemStats(&before)
	off := offheap.Total()
	budget := eager.NewBudget(1 << 20)
	for _, p := range eps {
		a, b := open(la, p.a, budget), open(lb, p.b, budget)
		require.NoError(t, a.Connect(b.Setup()))
		require.NoError(t, b.Connect(a.Setup()))
	}
	// One message in either direction.
	var cs [64]fabric.Completion
	progress := func() {
		for _, l := range []fabric.Link{la, lb} {
			for _, c := range cs[:l.Poll(cs[:])] {
				for i := range 2 {
					if e := ends[2*int(c.EP)+i]; e.ch.link == l {
						e.ch.OnCompletion(&c)
					}
				}
			}
		}
		for _, e := range ends {
			_, _, err := e.ch.Progress()
			require.NoError(t, err)
		}
	}
	var done tally
	for _, e := range ends {
		e.ch.Send(&Out{Data: make([]byte, 8), Done: &done})
		e.ch.Recv(&In{Buf: make([]byte, 8), Done: &done})
	}
	for done < 2*tally(len(ends)) {
		progress()
	}
	runtime.GC()
	runtime.GC() // what pools hold goes with the second
	runtime.ReadMemStats(&after)
	heap := int(after.HeapAlloc-before.HeapAlloc) / (2 * peers)
	rings := int(offheap.Total()-off) / (2 * peers)
	require.LessOrEqual(t, rings, 12<<10)
	require.Equal(t, rings, ends[0].ch.Memory())
	if len(offheap.Live()) == 0 { // rmadebug keeps a stack trace for each allocation
		require.LessOrEqual(t, rings+heap, 24<<10, "1024 of them in 24 MiB")
	}
	t.Logf("a peer: %d bytes of rings and mirrors (%d by Memory), %d bytes of heap", rings, ends[0].ch.Memory(), heap)
	for _, e := range ends {
		require.NoError(t, e.ep.Close())
	}
	for range 64 {
		la.Poll(cs[:])
		lb.Poll(cs[:])
	}
	for _, e := range ends {
		require.NoError(t, e.ch.Close())
	}
	for _, p := range pins {
		require.NoError(t, p.Close())
	}
}

package message

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/rdv"
	"github.com/seed33544411/rma/scatter"
)

// What is refused is gone around after steps that double, however the looks come: those
// of a process that did not run meanwhile end one step only.
func TestStall(t *testing.T) {
	t.Parallel()
	start := time.Unix(0, 0)
	at := start
	var w stall
	over := func() bool { return w.steps == stallSteps }
	left := w.look(at)
	for !over() {
		require.Equal(t, left/2, w.look(at.Add(left/2)), "the rest of the step")
		at = at.Add(left)
		left = w.look(at)
	}
	require.Equal(t, 12750*time.Microsecond, at.Sub(start))
	require.Greater(t, left, 10*time.Millisecond, "sleeps get longer")

	w = stall{}
	for n := range stallSteps {
		require.False(t, over(), "%d", n)
		w.look(at.Add(time.Duration(n) * time.Hour))
	}
	require.False(t, over(), "the first look begins a step")
	w.look(at.Add(stallSteps * time.Hour))
	require.True(t, over())
}

// Polls look at the clock now and then, and a wait begins again once something was taken.
func TestStallPolls(t *testing.T) {
	t.Parallel()
	var w stall
	for range stallPolls - 1 {
		require.False(t, w.poll())
		require.True(t, w.until.IsZero())
	}
	w.poll()
	require.False(t, w.until.IsZero())
	w.steps = stallSteps
	require.True(t, w.poll())
}

// oneRail is a further connection whose memory is registered with the pins of the first, and which reads nothing.
type oneRail struct{ pins *Pins }

func (r *oneRail) Pins(i int) *Pins {
	if i == 1 {
		return r.pins
	}
	return nil
}

func (r *oneRail) Read(_ []byte, _ scatter.Region, _ rdv.RailKeys, done func(error)) {
	done(errors.New("x"))
}

// A message that was to be announced for a while, and goes in a gather when the ring has room, leaves no memory registered.
func TestGatheredAfterAll(t *testing.T) {
	t.Parallel()
	rail := &oneRail{}
	o := Options{Policy: policies["gather"], Rails: rail, Rendezvous: rdv.Options{Transfers: 1}}
	a, b := pair(t, simLinks(sim.Options{}), 64, o, o)
	rail.pins = a.ch.pins
	data := make([]byte, 150<<10)
	send := func(data []byte) (*Out, *note) {
		n := &note{}
		out := &Out{Data: data, Done: n}
		a.ch.Send(out)
		return out, n
	}
	sent := 0
	testutil.Eventually(t, testutil.Limit, func() bool {
		if a.ch.backlog.n == 0 {
			send(data)
			sent++
		}
		require.NoError(t, a.turn())
		return a.ch.Stats().Descriptors > 0
	}, "the ring is full, and one message announced")
	out, last := send(data)
	_, small := send(data[:100])
	require.NoError(t, a.turn())
	require.NotNil(t, out.rails, "announcing it was refused")
	require.Zero(t, last.n)

	var got note
	recv := func(n int) {
		for range n {
			b.ch.Recv(&In{Buf: make([]byte, len(data)), Any: true, Done: &got})
		}
	}
	recv(sent - 1)
	turns(t, 10, b, a) // the ring has room
	require.Zero(t, last.n)
	recv(3)
	testutil.Eventually(t, testutil.Limit, func() bool {
		turns(t, 1, a, b)
		return got.n == sent+2 && last.n == 1 && small.n == 1
	}, "all messages")
	require.EqualValues(t, 1, a.ch.Stats().Descriptors)
	require.Nil(t, out.rails)
	require.NoError(t, a.ch.pins.Invalidate(data))
}

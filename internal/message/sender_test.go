package message

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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

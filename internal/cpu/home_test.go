package cpu

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHome(t *testing.T) {
	for _, c := range []struct {
		mine        Set
		rank, ranks int
		home        int
	}{
		{Of(0, 1), 0, 2, 0},
		{Of(0, 1), 1, 2, 1},
		{Of(0, 1, 4, 5, 8), 1, 2, 4},
		{Of(0, 1, 4, 5, 8), 4, 5, 8},
		{Of(0, 1), 0, 1, 0},
		{Of(0, 1), 2, 3, NoHome},
		{Of(3), 0, 1, NoHome},
		{Set{}, 0, 1, NoHome},
		{Of(0, 1), -1, 2, NoHome},
		{Of(0, 1), 2, 2, NoHome},
	} {
		require.Equal(t, c.home, Home(c.mine, c.rank, c.ranks), "%+v", c)
	}
}

// A thread that takes turns although its rank can have a processor goes there, at times that
// become rarer while that fails, and counts such turns in between only.
func TestTurnsAreSettled(t *testing.T) {
	c := NewContention(5, 1)
	c.switched, c.short, c.late = 0, 2, math.MaxInt64
	var homes []int
	moved := false
	c.settle = func(home int, late int64) bool {
		require.Equal(t, c.late, late)
		homes = append(homes, home)
		return moved
	}
	turn := func() bool {
		c.turns.Store(0)
		c.sure.Store(0)
		c.yielded(1, 0) // the next one switches threads if it has to
		if c.asked.Swap(false) {
			c.confirmed(0)
		}
		return c.TakesTurns()
	}
	require.False(t, turn())
	require.Equal(t, []int{5}, homes)
	require.Equal(t, c.least, c.settled.span.Load())
	c.settled.until.Store(Ticks() + c.most*1000)
	require.True(t, turn())
	require.Len(t, homes, 1)
	c.settled.until.Store(Ticks())
	require.False(t, turn())
	require.Len(t, homes, 2)
	require.Equal(t, 2*c.least, c.settled.span.Load())
	moved = true
	c.settled.until.Store(Ticks())
	require.False(t, turn())
	c.settled.until.Store(Ticks())
	require.False(t, turn())
	require.Len(t, homes, 4)
	require.Zero(t, c.settled.span.Load())

	c = NewContention(NoHome, 1)
	c.switched, c.short, c.late = 0, 2, math.MaxInt64
	c.settle = func(int, int64) bool { require.Fail(t, "no home"); return false }
	require.True(t, turn())
}

package enum

import (
	"testing"

	"github.com/stretchr/testify/require"
)

type fruit uint8

func TestNames(t *testing.T) {
	names := []string{1: "apple", 3: "cherry"}
	for v, want := range map[fruit]string{0: "fruit(0)", 1: "apple", 2: "fruit(2)", 3: "cherry", 4: "fruit(4)", 255: "fruit(255)"} {
		require.Equal(t, want, Name("fruit", names, v))
		got, ok := Parse[fruit](names, want)
		if v == 1 || v == 3 {
			require.True(t, ok)
			require.Equal(t, v, got)
		} else {
			require.False(t, ok, want)
		}
	}
	require.Equal(t, "int(-1)", Name("int", names, -1))
	_, ok := Parse[fruit](names, "")
	require.False(t, ok)
	require.Zero(t, testing.AllocsPerRun(10, func() { _ = Name("fruit", names, fruit(3)) }))
}

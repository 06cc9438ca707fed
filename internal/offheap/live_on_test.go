//go:build rmadebug && unix

package offheap

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Live describes memory in use, with its allocating calls, and no other memory.
func TestLive(t *testing.T) {
	mine := func() bool { return strings.Contains(strings.Join(Live(), ""), "offheap.TestLive:") }
	b, err := Alloc(100, Scratch)
	require.NoError(t, err)
	require.True(t, mine())
	require.NoError(t, Free(b, Scratch))
	require.False(t, mine())
}

package testutil

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The process keeps its network namespace, which is that of its main thread, whatever thread
// a host is made on.
func TestHostsAreNotTheProcess(t *testing.T) {
	own := func() string {
		at, err := os.Readlink("/proc/self/ns/net")
		require.NoError(t, err)
		return at
	}
	was := own()
	for range 200 {
		t.Run("", func(t *testing.T) {
			there, do := "", inNamespace(t)
			do(func() { there, _ = os.Readlink("/proc/thread-self/ns/net") })
			require.NotEqual(t, was, there)
			require.Equal(t, was, own())
		})
	}
}

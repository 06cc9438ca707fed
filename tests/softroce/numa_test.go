//go:build linux

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Nodes have all CPUs and all memory of the guest between them.
func TestNUMANodes(t *testing.T) {
	args, err := numaNodes(2, 5, "3G")
	require.NoError(t, err)
	require.Equal(t, []string{
		"-object", "memory-backend-ram,id=node0,size=1610612736", "-numa", "node,nodeid=0,cpus=0-1,memdev=node0",
		"-object", "memory-backend-ram,id=node1,size=1610612736", "-numa", "node,nodeid=1,cpus=2-4,memdev=node1",
	}, args)
	for mem, says := range map[string]string{"much": "-mem", "3M": "the same number of MiB"} {
		_, err := numaNodes(2, 2, mem)
		require.ErrorIs(t, err, errUsage)
		require.ErrorContains(t, err, says)
	}
}

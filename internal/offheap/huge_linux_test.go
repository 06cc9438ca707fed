package offheap

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Memory whose later accesses would end in SIGBUS is not returned, as that of huge pages beyond
// the limit of a cgroup. A file that ends in the middle of the mapping has such pages as well.
func TestMapBackedProvesAllPages(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Truncate(2*HugePage))
	b := mapBacked(int(f.Fd()), 2*HugePage, unix.MAP_PRIVATE)
	require.Len(t, b, 2*HugePage)
	b[HugePage] = 1
	require.NoError(t, unix.Munmap(b))
	require.True(t, mapBacked(int(f.Fd()), 3*HugePage, unix.MAP_PRIVATE) == nil, "the last huge page has no memory")
}

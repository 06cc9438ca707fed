//go:build unix

package bulk

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// guarded returns n bytes of whole pages between two pages that fault.
func guarded(t *testing.T, n int) []byte {
	page := os.Getpagesize()
	all, err := unix.Mmap(-1, 0, n+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(all)) })
	require.NoError(t, unix.Mprotect(all[:page], unix.PROT_NONE))
	require.NoError(t, unix.Mprotect(all[page+n:], unix.PROT_NONE))
	return all[page : page+n]
}

// Blocks that begin behind one guard page or end before the other: an access outside would
// crash the test.
func TestCopyBetweenGuardPages(t *testing.T) {
	t.Parallel()
	n := 4 * os.Getpagesize()
	src, dst := guarded(t, n), guarded(t, n)
	pattern(src, 11)
	var lens []int
	for k := 1; k < 700; k++ {
		lens = append(lens, k)
	}
	lens = append(lens, n-65, n-64, n-1, n)
	for w := range ways {
		for _, k := range lens {
			for _, off := range [][2]int{{0, 0}, {n - k, n - k}, {0, n - k}, {n - k, 0}} {
				d, s := dst[off[0]:off[0]+k], src[off[1]:off[1]+k]
				Copy(w, d, s)
				if !bytes.Equal(d, s) {
					t.Fatalf("%v: %d bytes at %v: wrong bytes", w, k, off)
				}
			}
		}
	}
}

//go:build unix

package offheap

import (
	"math"
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestAllocIsAlignedZeroedAndCounted(t *testing.T) {
	before := InUse(Scratch)
	for _, size := range []int{1, PageSize - 1, PageSize, PageSize + 1, 1 << 20} {
		b, err := Alloc(size, Scratch)
		require.NoError(t, err)
		require.Len(t, b, size)
		require.Zero(t, uintptr(unsafe.Pointer(&b[0]))%uintptr(PageSize))
		require.Equal(t, before+int64(RoundUp(size)), InUse(Scratch))
		for i := range b {
			require.Zero(t, b[i])
			b[i] = byte(i)
		}
		require.NoError(t, Free(b, Scratch))
		require.Equal(t, before, InUse(Scratch))
	}
}

// pageFile returns the descriptor of a file of one page.
func pageFile(t *testing.T) int {
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	require.NoError(t, f.Truncate(int64(PageSize)))
	return int(f.Fd())
}

func TestMapSharesTheFile(t *testing.T) {
	fd := pageFile(t)
	a, err := Map(fd, 100, Scratch)
	require.NoError(t, err)
	b, err := Map(fd, 100, Scratch)
	require.NoError(t, err)
	a[99] = 42
	require.Equal(t, byte(42), b[99])
	require.NoError(t, Free(a, Scratch))
	require.NoError(t, Free(b, Scratch))
}

func TestBadSizes(t *testing.T) {
	for _, size := range []int{0, -1, math.MaxInt} {
		_, err := Alloc(size, Scratch)
		require.ErrorIs(t, err, ErrSize)
		_, err = Map(0, size, Scratch)
		require.ErrorIs(t, err, ErrSize)
	}
	require.NoError(t, Free(nil, Scratch))
	require.Equal(t, "rings", Rings.String())
	require.Equal(t, "purpose(99)", Purpose(99).String())
}

func TestMapReadSeesTheFile(t *testing.T) {
	fd := pageFile(t)
	w, err := Map(fd, 100, Scratch)
	require.NoError(t, err)
	r, err := MapRead(fd, 100, Scratch)
	require.NoError(t, err)
	w[7] = 42
	require.Equal(t, byte(42), r[7])
	require.NoError(t, Free(w, Scratch))
	require.NoError(t, Free(r, Scratch))
}

func TestAllocHuge(t *testing.T) {
	before := InUse(Scratch)
	for _, size := range []int{PageSize, HugePage, HugePage + PageSize, 2 * HugePage} {
		b, err := AllocHuge(size, Scratch)
		require.NoError(t, err)
		require.Len(t, b, size)
		require.Zero(t, uintptr(unsafe.Pointer(&b[0]))%uintptr(PageSize))
		for i := 0; i < size; i += PageSize {
			require.Zero(t, b[i])
			b[i] = 1
		}
		require.Equal(t, before+int64(RoundUp(size)), InUse(Scratch))
		require.NoError(t, Free(b, Scratch))
		require.Equal(t, before, InUse(Scratch))
	}
	_, err := AllocHuge(0, Scratch)
	require.ErrorIs(t, err, ErrSize)
}

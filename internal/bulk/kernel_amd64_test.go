package bulk

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestChooseKernel(t *testing.T) {
	t.Parallel()
	upTo := func(top kernel) func(kernel) bool { return func(k kernel) bool { return k <= top } }
	require.Equal(t, avx512, choose(false, upTo(avx512)))
	require.Equal(t, avx2, choose(true, upTo(avx512)))
	require.Equal(t, avx2, choose(false, upTo(avx2)))
	require.Equal(t, sse2, choose(false, upTo(sse2)))
	require.True(t, best.has())
}

// Each kernel that the processor supports, not only the best: whole lines, any alignment of
// the source.
func TestKernels(t *testing.T) {
	t.Parallel()
	src := make([]byte, 40*line+line)
	pattern(src, 13)
	buf := make([]byte, 44*line)
	at := int(-uintptr(unsafe.Pointer(&buf[0])) & (line - 1))
	for k := range kernels {
		if !k.has() {
			t.Logf("%s: not of this processor", kernelNames[k])
			continue
		}
		for lines := range 40 {
			for s := range line {
				clear(buf)
				n := lines * line
				k.stream(buf[at:at+n], src[s:s+n])
				require.True(t, bytes.Equal(src[s:s+n], buf[at:at+n]), "%s: %d lines from %d", kernelNames[k], lines, s)
				require.True(t, allZero(buf[:at]) && allZero(buf[at+n:]), "%s: stored outside", kernelNames[k])
			}
		}
	}
	moveString(nil, src)
}

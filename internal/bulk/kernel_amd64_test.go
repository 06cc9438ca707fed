package bulk

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// Each kernel that the processor has, also those that are not the best: whole lines,
// any alignment of the source.
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

package shm

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric/internal/softlink"
	"github.com/seed33544411/rma/internal/testutil"
)

// What one version of the program writes the next one reads.
func TestLayout(t *testing.T) {
	require.EqualValues(t, 128+maxCPUs/8, unsafe.Sizeof(ctlHeader{}))
	require.LessOrEqual(t, unsafe.Sizeof(ctlHeader{}), uintptr(tableOff))
	require.EqualValues(t, 128, unsafe.Offsetof(ctlHeader{}.cpus))
	require.EqualValues(t, 64, unsafe.Offsetof(ctlHeader{}.sleep))

	require.EqualValues(t, entrySize, unsafe.Sizeof(tableEntry{}))
	require.EqualValues(t, 0, unsafe.Offsetof(tableEntry{}.gen))
	require.EqualValues(t, 4, unsafe.Offsetof(tableEntry{}.key))
	require.EqualValues(t, 8, unsafe.Offsetof(tableEntry{}.base))
	require.EqualValues(t, 16, unsafe.Offsetof(tableEntry{}.size))
	require.EqualValues(t, 24, unsafe.Offsetof(tableEntry{}.flags))
	require.EqualValues(t, 28, unsafe.Offsetof(tableEntry{}.seg))
	require.EqualValues(t, 32, unsafe.Offsetof(tableEntry{}.segOff))
	require.EqualValues(t, tableSlots, softlink.MaxRegions)

	require.EqualValues(t, replyOff, unsafe.Sizeof(chanHeader{}))
	require.EqualValues(t, 8, unsafe.Offsetof(chanHeader{}.slots))
	require.EqualValues(t, nonceOff, unsafe.Offsetof(chanHeader{}.nonce))
	require.EqualValues(t, 64, unsafe.Offsetof(chanHeader{}.head))
	require.EqualValues(t, 128, unsafe.Offsetof(chanHeader{}.starved))
	require.EqualValues(t, 132, unsafe.Offsetof(chanHeader{}.hazard))
	require.EqualValues(t, 136, unsafe.Offsetof(chanHeader{}.refused))
	require.EqualValues(t, probeOff, unsafe.Offsetof(chanHeader{}.probe))

	require.EqualValues(t, lineSize, unsafe.Sizeof(reply{}))
	require.EqualValues(t, 8, unsafe.Offsetof(reply{}.status))
	require.EqualValues(t, 16, unsafe.Offsetof(reply{}.value))
	require.EqualValues(t, lineSize, unsafe.Sizeof(frame{}))
	require.EqualValues(t, 8, unsafe.Offsetof(frame{}.w))

	require.Zero(t, frameOff%lineSize)
	for slots := minSlots; slots <= maxSlots; slots *= 2 {
		require.Zero(t, bounceOff(slots)%layoutPages)
		require.GreaterOrEqual(t, bounceOff(slots), frameOff+slots*lineSize)
	}
	require.GreaterOrEqual(t, maxSlots, maxDepth)
}

// An endpoint's memory is paid for every peer.
func TestSizes(t *testing.T) {
	testutil.Size(t, 48, unsafe.Sizeof(xlate{}))
	require.LessOrEqual(t, unsafe.Sizeof(request{}), uintptr(160))
	require.LessOrEqual(t, unsafe.Sizeof(endpoint{}), uintptr(4400))
}

func TestOverlayRefusesWhatDoesNotFit(t *testing.T) {
	b := make([]byte, 256)
	require.Panics(t, func() { overlay[reply](b, 200) })
	require.Panics(t, func() { overlay[reply](b, -8) })
	require.Panics(t, func() { overlay[reply](b, 4) })
	require.Panics(t, func() { overlays[reply](b, 64, 4) })
	require.NotPanics(t, func() { overlays[reply](b, 64, 3) })
}

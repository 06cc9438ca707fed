package bulk

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/topo"
)

// pattern fills b with bytes that differ from their neighbours.
func pattern(b []byte, seed uint64) {
	for i := range b {
		x := (uint64(i) + seed) * 0x9e3779b97f4a7c15
		b[i] = byte(x >> 56)
	}
}

// For every length up to several iterations of the kernels, every alignment of the
// destination within a line and some of the source: the bytes are copied and nothing around
// them changes.
func TestCopyAllAlignments(t *testing.T) {
	t.Parallel()
	const pad = 128
	var lens []int
	for n := 0; n <= 700; n++ {
		lens = append(lens, n)
	}
	if testing.Short() || raceEnabled {
		lens = []int{0, 1, 63, 64, 255, 256, 257, 319, 320, 383, 511, 512, 577, 640, 1023, 1090}
	}
	src := make([]byte, 1300)
	pattern(src, 1)
	buf := make([]byte, 1300+2*pad)
	want := make([]byte, len(buf))
	for w := range ways {
		for _, n := range lens {
			for d := range line {
				for _, s := range []int{0, 1, 33, 63} {
					fill(buf, 0xa5)
					fill(want, 0xa5)
					copy(want[pad+d:pad+d+n], src[s:])
					Copy(w, buf[pad+d:pad+d+n], src[s:s+n])
					if !bytes.Equal(buf, want) {
						t.Fatalf("%v: %d bytes, destination %d, source %d off a line: wrong bytes", w, n, d, s)
					}
				}
			}
		}
	}
}

func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

// Lengths around the piece size in which long blocks are copied.
func TestCopyLong(t *testing.T) {
	t.Parallel()
	src := make([]byte, 3*piece+200)
	pattern(src, 7)
	dst := make([]byte, len(src)+64)
	for w := range ways {
		for _, n := range []int{piece - 1, piece, piece + 1, piece + line, 2*piece - 63, 2 * piece, 3*piece + 137} {
			for _, off := range []int{0, 1, 63} {
				clear(dst)
				Copy(w, dst[off:off+n], src[:n])
				require.True(t, bytes.Equal(src[:n], dst[off:off+n]), "%v %d at %d", w, n, off)
				require.True(t, allZero(dst[:off]) && allZero(dst[off+n:]), "%v %d at %d: stored outside", w, n, off)
			}
		}
	}
}

func allZero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}

// Overlapping blocks in both directions: the guarantee of the builtin copy.
func TestCopyOverlapping(t *testing.T) {
	t.Parallel()
	const n = 5000
	for w := range ways {
		for _, shift := range []int{0, 1, 63, 64, 100, 4096, n - 1} {
			for _, down := range []bool{false, true} {
				got, want := make([]byte, 2*n), make([]byte, 2*n)
				pattern(got, 3)
				pattern(want, 3)
				to, from := shift, 0
				if down {
					to, from = 0, shift
				}
				copy(want[to:to+n], want[from:from+n])
				Copy(w, got[to:to+n], got[from:from+n])
				require.True(t, bytes.Equal(want, got), "%v by %d, down %v", w, shift, down)
			}
		}
	}
}

func TestPlan(t *testing.T) { // not parallel: it counts allocations
	p := Plan{String: 1000, Stream: 5000}
	for n, want := range map[uint64]Way{0: Cached, 999: Cached, 1000: String, 4999: String, 5000: Stream, Never: Stream} {
		require.Equal(t, want, p.Way(n), n)
	}
	never := Plan{String: Never, Stream: Never}
	require.Equal(t, Cached, never.Way(1<<40))
	src := make([]byte, 9000)
	pattern(src, 5)
	for _, n := range []int{0, 10, 2000, 9000} {
		dst := make([]byte, n)
		require.Equal(t, n, p.Copy(dst, src))
		require.True(t, bytes.Equal(src[:n], dst))
	}
	require.Equal(t, 10, p.Copy(make([]byte, 20), src[:10]), "the shorter of the two")
	require.Zero(t, testing.AllocsPerRun(10, func() { p.Copy(src[4500:], src[:4500]) }))
	for w := range ways + 1 {
		require.NotEmpty(t, w.String())
	}
}

func TestDefault(t *testing.T) {
	t.Parallel()
	h := &topo.Host{Online: cpu.Of(0, 1), Caches: []topo.Cache{
		{Level: 1, Size: 48 << 10, CPUs: cpu.Of(0)}, {Level: 1, Size: 48 << 10, CPUs: cpu.Of(1)},
		{Level: 3, Size: 32 << 20, CPUs: cpu.Of(0, 1)},
	}}
	stream, str := uint64(Never), uint64(Never)
	if hasStream() {
		stream = 8 << 20
	}
	if hasString() {
		str = 48 << 10
	}
	require.Equal(t, Plan{str, stream}, Default(h, cpu.Of(0), 2))
	require.Equal(t, Plan{str, stream}, Default(h, cpu.Of(0), 9), "no more users at a time than processors")
	if hasStream() {
		require.Equal(t, 2*stream, Default(h, cpu.Of(0), 1).Stream)
	}
	require.Equal(t, Plan{Never, Never}, Default(&topo.Host{}, cpu.Of(0), 2), "nothing is known")
	if runtime.GOARCH == "amd64" {
		require.NotEqual(t, "none", Kernel())
	}
}

func FuzzCopy(f *testing.F) {
	f.Add(uint8(0), uint16(0), uint16(0), uint32(300), uint64(1))
	f.Add(uint8(1), uint16(63), uint16(1), uint32(4096), uint64(2))
	f.Add(uint8(2), uint16(17), uint16(4090), uint32(1<<20), uint64(3))
	f.Fuzz(func(t *testing.T, way uint8, dOff, sOff uint16, n uint32, seed uint64) {
		d, s, k := int(dOff%5000), int(sOff%5000), int(n%(piece+9000))
		r := rand.New(rand.NewPCG(seed, 1))
		src, got := make([]byte, s+k+100), make([]byte, d+k+100)
		for i := range src {
			src[i] = byte(r.Uint32())
		}
		want := make([]byte, len(got))
		copy(want[d:d+k], src[s:s+k])
		Copy(Way(way%uint8(ways+1)), got[d:d+k], src[s:s+k])
		require.True(t, bytes.Equal(want, got))
	})
}

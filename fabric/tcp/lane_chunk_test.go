//go:build linux || darwin || freebsd

package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWholeSegments(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]int{{1 << 20, 65483, 16 * 65483}, {1 << 20, 1448, 724 * 1448}, {1000, 1448, 1000}, {1448, 1448, 1448}, {1 << 20, 0, 1 << 20}, {5, -1, 5}} {
		require.Equal(t, c[2], wholeSegments(c[0], c[1]), "%v", c)
	}
}

func TestWithRest(t *testing.T) {
	t.Parallel()
	const mss, chunk = 32768, 131072
	for all, want := range map[uint64]int{
		100: chunk, chunk: chunk, chunk + 32: chunk + 32, chunk + mss - 1: chunk + mss - 1, chunk + mss: chunk, 1 << 33: chunk,
	} {
		require.Equal(t, want, withRest(chunk, all, mss), "%d", all)
	}
	require.Equal(t, chunk+32, withRest(chunk, chunk+32, 0), "segments of unknown size")
}

// The best size is chosen, and the smallest of equals, whatever single sends took
// longer, or moved less.
func TestTuner(t *testing.T) {
	t.Parallel()
	const mss = 1448
	run := func(cost func(i, round int) int64, moved func(total int) int) *tuner {
		var u tuner
		now := int64(1)
		u.tried(1, 1, 1, now)
		for k := 0; !u.settled(); k++ {
			i := k % numChunks
			size := u.size(mss)
			require.Equal(t, wholeSegments(minChunk<<i, mss), size)
			n := moved(size)
			now += cost(i, k/numChunks) * int64(n)
			u.tried(size, size, n, now)
		}
		return &u
	}
	all := func(n int) int { return n }
	u := run(func(i, _ int) int64 { return []int64{400, 300, 200, 204}[i] }, all)
	require.Equal(t, wholeSegments(512<<10, mss), u.size(mss))
	u = run(func(i, _ int) int64 { return 100 }, all)
	require.Equal(t, wholeSegments(128<<10, mss), u.size(mss))
	u = run(func(i, round int) int64 { return []int64{400, 300, 220, 200}[i] + 10_000*int64((round+i)%2) }, all)
	require.Equal(t, wholeSegments(1<<20, mss), u.size(mss))
	u = run(func(int, int) int64 { return 100 }, func(n int) int { return n / 2 })
	require.Equal(t, wholeSegments(512<<10, mss), u.size(mss), "no send that tells anything")
}

package message

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/internal/testutil"
)

// A copy has the size that was asked for, and no more room than twice that.
func TestCopied(t *testing.T) {
	for range 2 { // new, then perhaps used again
		for _, n := range []int{0, 1, minKept - 1, minKept, minKept + 1, 65535, 65536, 65537, maxKept, maxKept + 1} {
			c := newCopied(n)
			require.Len(t, c.bytes, n)
			require.LessOrEqual(t, cap(c.bytes), max(2*n, 64))
			c.release()
		}
	}
}

// Messages for which there is no receive yet, and then is, allocate no memory for their data,
// however large they are.
func TestUnexpectedAllocatesNothing(t *testing.T) {
	if testutil.Race {
		t.Skip("with the race detector, pools forget")
	}
	u := unexpected{limit: 1 << 30, ring: new(eager.Channel)}
	for _, n := range []int{minKept, 50_000, maxKept} {
		counted := 0
		require.Zero(t, testing.AllocsPerRun(100, func() {
			u.add(1, 2, n)
			counted = u.bytes
			c := u.list[u.head].data
			u.remove(u.head)
			c.release()
		}), "%d bytes", n)
		require.GreaterOrEqual(t, counted, n+asideOverhead)
		require.Zero(t, u.bytes)
	}
}

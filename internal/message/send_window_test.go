package message

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/sampling"
)

// A ring limits a stream if it is filled about once per trip. Then it is too small; a ring that
// takes longer to fill is not, whether the link or the receiver is slow.
func TestRingLimitsAFarStream(t *testing.T) {
	const trip, blocks = 10 * time.Millisecond, 56
	for _, tc := range []struct {
		name   string
		filled uint64
		took   time.Duration
		want   bool
	}{
		{"once per trip", 2 * blocks, 2 * trip, true},
		{"once in three trips", 4 * blocks, 12 * trip, true},
		{"once in five trips", 4 * blocks, 20 * trip, false},
		{"too little to tell", 2*blocks - 1, trip, false},
	} {
		w := window{trip: trip}
		now := time.Now()
		require.False(t, w.limits(1000, blocks, now), "%s: the first time", tc.name)
		require.Equal(t, tc.want, w.limits(1000+tc.filled, blocks, now.Add(tc.took)), tc.name)
	}
}

// On a far path a ring of the default size grows as long as it limits the stream, on a near one
// it stays, whatever the parameters say about the time of a byte.
func TestRingGrowsWithThePath(t *testing.T) {
	for name, tc := range map[string]struct {
		trip time.Duration
		want int
	}{
		"far":  {10 * time.Second, 2 << 20}, // longer than the test may take
		"near": {time.Microsecond, commonRing},
	} {
		t.Run(name, func(t *testing.T) {
			p := sampling.Defaults("sim")
			var err error
			p.Os, err = logp.NewCurve([]logp.Point{{}, {Size: 4096}, {Size: 1 << 20, NS: 1e11}})
			require.NoError(t, err)
			p.Ls = float64(tc.trip) / 2
			budget := eager.NewBudget(64 << 20)
			o := Options{Params: &p, Policy: policies["eager"], Rings: budget, RingMost: 2 << 20}
			a, b := pair(t, simLinks(sim.Options{}), 0, o, o)
			const n = 512 // eight rings of 64 blocks
			notes, buf, msg := make([]note, n), make([]byte, 1000), make([]byte, 1000)
			for i := range notes {
				b.ch.Recv(&In{Buf: buf, Done: &notes[i]})
				a.ch.Send(&Out{Data: msg})
			}
			testutil.Eventually(t, testutil.Limit, func() bool {
				require.NoError(t, a.turn())
				require.NoError(t, b.turn())
				return notes[n-1].n > 0
			}, "all messages")
			require.Equal(t, tc.want, a.ch.Stats().PeerRing)
		})
	}
}

package compare

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProcessorTimeIsThatOfTheDifference(t *testing.T) {
	t.Parallel()
	p := &program{Peer: &Peer{WarmUp: aFifth}, pairs: 1}
	short, long := Sample{CPU: 50 * time.Millisecond}, Sample{CPU: 170 * time.Millisecond}
	require.Equal(t, 120e6/1.2/900, p.cpu(Test{Rate, 8}, 100, short, 1000, long), "a fifth more is warm-up")
	require.Equal(t, 120e6/1.2/900/2, p.cpu(Test{Lat, 8}, 100, short, 1000, long), "two messages a round trip")
	p.pairs = 3
	require.Equal(t, 120e6/1.2/900/3, p.cpu(Test{Rate, 8}, 100, short, 1000, long))
	p.pairs, p.WarmUp = 1, func(Kind, int) int { return 5 }
	require.Equal(t, 120e6/900, p.cpu(Test{Rate, 8}, 100, short, 1000, long))
	p.WarmUp = nil
	require.Equal(t, 120e6/900, p.cpu(Test{Rate, 8}, 100, short, 1000, long))
	require.Zero(t, p.cpu(Test{Rate, 8}, 100, short, 199, long), "too alike")
	require.Zero(t, p.cpu(Test{Rate, 8}, 100, long, 1000, short), "less for more")
}

// A round whose processor time is not known does not count for the median.
func TestUnknownProcessorTimeIsLeftOut(t *testing.T) {
	t.Parallel()
	var r Row
	var ps []pair
	for _, cpu := range []float64{0, 0, 90, 100, 110} {
		ps = append(ps, pair{ours: 1, theirs: 1, oursCPU: cpu, theirsCPU: 2 * cpu})
	}
	r.fill(Test{Rate, 8}, ps)
	require.Equal(t, []float64{100, 200}, []float64{r.OursCPU, r.TheirsCPU})
	r.fill(Test{Rate, 8}, ps[:2])
	require.Zero(t, r.OursCPU+r.TheirsCPU)
}

package wireup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRankList(t *testing.T) {
	t.Parallel()
	for want, ranks := range map[string][]int{
		"rank 3":                         {3},
		"ranks 3, 4":                     {3, 4},
		"ranks 3, 7-12":                  {3, 7, 8, 9, 10, 11, 12},
		"ranks 0-2, 4, 6, 7, 9-11":       {0, 1, 2, 4, 6, 7, 9, 10, 11},
		"ranks 0, 2, 4, 6, 8, 10, 12-14": {0, 2, 4, 6, 8, 10, 12, 13, 14},
	} {
		require.Equal(t, want, rankList(ranks))
	}
	var odd []int
	for r := 1; r < 1000; r += 2 {
		odd = append(odd, r)
	}
	require.Regexp(t, `^ranks 1, 3, .*, 63 and 468 more$`, rankList(odd))
}

func TestRounded(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{
		"30s": 30*time.Second + 12*time.Millisecond, "2m0.1s": 2*time.Minute + 60*time.Millisecond,
		"50.3ms": 50_312 * time.Microsecond, "7.5µs": 7451 * time.Nanosecond, "0s": 0,
	} {
		require.Equal(t, want, rounded(d).String())
	}
}

package bytesize

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnits(t *testing.T) {
	t.Parallel()
	for text, n := range map[string]int64{
		"0": 0, "8": 8, "1023": 1023, "4K": 4096, "1025K": 1025 << 10, "1M": 1 << 20, "3G": 3 << 30, "4096G": 4 << 40, "-1K": -1024,
	} {
		require.Equal(t, text, Format(n))
	}
	for text, want := range map[string]struct {
		number string
		unit   int64
	}{"": {"", 1}, "12": {"12", 1}, "K": {"", 1 << 10}, "4K": {"4", 1 << 10}, "4KK": {"4K", 1 << 10}, "1M": {"1", 1 << 20}, "2G": {"2", 1 << 30}, "4k": {"4k", 1}} {
		number, unit := Cut(text)
		require.Equal(t, want.number, number, text)
		require.Equal(t, want.unit, unit, text)
	}
}

package bytesize

import (
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnits(t *testing.T) {
	t.Parallel()
	for text, n := range map[string]int64{
		"0": 0, "8": 8, "1023": 1023, "4K": 4096, "1025K": 1025 << 10, "1M": 1 << 20, "3G": 3 << 30, "4096G": 4 << 40, "-1K": -1024,
	} {
		require.Equal(t, text, Format(n))
		got, err := Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, n, got, text)
	}
	for text, n := range map[string]int64{"4k": 4096, "4KiB": 4096, "2mib": 2 << 20, "1GIB": 1 << 30, "007K": 7168, "+1": 1, "9223372036854775807": math.MaxInt64, "-8388608K": -8 << 30} {
		got, err := Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, n, got, text)
	}
	for text, wrong := range map[string]error{
		"": strconv.ErrSyntax, "K": strconv.ErrSyntax, "iB": strconv.ErrSyntax, "8iB": strconv.ErrSyntax, "4KK": strconv.ErrSyntax, "4KB": strconv.ErrSyntax, "4 K": strconv.ErrSyntax,
		"1.5M": strconv.ErrSyntax, "0x10": strconv.ErrSyntax, "1T": strconv.ErrSyntax,
		"9223372036854775808": strconv.ErrRange, "9007199254740992K": strconv.ErrRange, "8589934592G": strconv.ErrRange, "-9223372036854775809": strconv.ErrRange,
	} {
		n, err := Parse(text)
		require.ErrorIs(t, err, wrong, text)
		require.Zero(t, n, text)
	}
}

// What Format writes is read as the same number; what Parse reads is written in a form that it
// reads.
func FuzzParse(f *testing.F) {
	f.Fuzz(func(t *testing.T, s string) {
		n, err := Parse(s)
		if err != nil {
			require.Zero(t, n)
			return
		}
		again, err := Parse(Format(n))
		require.NoError(t, err)
		require.Equal(t, n, again)
	})
}

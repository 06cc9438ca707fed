package bench

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseSizes(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][]int{
		"8":             {8},
		"8,4K,1M":       {8, 4096, 1 << 20},
		" 1 , 3KiB,2g ": nil,
		"1G":            {1 << 30},
		"8:64":          {8, 16, 32, 64},
		"3:20":          {3, 6, 12},
		"512:2k,8":      {512, 1024, 2048, 8},
		"7:7":           {7},
		"1m,1mib":       nil,
	} {
		got, err := ParseSizes(in)
		if want == nil {
			require.ErrorIs(t, err, ErrSizes, in)
			continue
		}
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for in, says := range map[string]string{
		"": "empty", "  ": "empty", "0": "zero", "8,0K": "zero", "-8": "negative", "8,8": "twice", "4K,4096": "twice", "8:64,32": "twice",
		"64:8": "backwards", "x": "not a size", "8X": "not a size", "8iB": "not a size", "1.5K": "not a size", "8,,9": "missing", "8:": "missing",
		":8": "missing", "8:16:32": "not a size", "2G": "out of range", "99999999999999999999": "out of range", "9999999999G": "out of range",
		"+8": "", "0x10": "not a size",
	} {
		got, err := ParseSizes(in)
		if says == "" {
			require.NoError(t, err, in)
			continue
		}
		require.ErrorIs(t, err, ErrSizes, "%q gave %v", in, got)
		require.Contains(t, err.Error(), says, in)
	}
}

func TestFormatSizeIsReadBack(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 7, 8, 1000, 1024, 1536, 4096, 1 << 20, 3 << 20, 1<<20 + 1, 1 << 30} {
		got, err := ParseSizes(FormatSize(n))
		require.NoError(t, err)
		require.Equal(t, []int{n}, got)
	}
	require.Equal(t, "1536", FormatSize(1536))
	require.Equal(t, "3M", FormatSize(3<<20))
}

func FuzzParseSizes(f *testing.F) {
	for _, s := range []string{"8,4K,1M", "8:4M", "1:1G", "0", "-1", "8,8", "1KiB", ",", ":", "9223372036854775807K", "1:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseSizes(s)
		if err != nil {
			require.ErrorIs(t, err, ErrSizes)
			return
		}
		require.NotEmpty(t, got)
		seen := map[int]bool{}
		var again []string
		for _, n := range got {
			require.True(t, n >= 1 && n <= MaxSize && !seen[n], "%q gave %v", s, got)
			seen[n] = true
			again = append(again, FormatSize(n))
		}
		back, err := ParseSizes(strings.Join(again, ","))
		require.NoError(t, err)
		require.Equal(t, got, back)
	})
}

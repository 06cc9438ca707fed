// Package bytesize reads and writes the units of sizes in bytes: K, M and G for powers of
// 1024.
//
// It imports nothing of the project. The range of a size is decided by the packages that parse
// it.
package bytesize

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

var units = []struct {
	name string
	size int64
}{{"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}}

// Parse reads a size: 8, 4K, 4KiB or 4k. The error is strconv.ErrSyntax or, of a size that does
// not fit, strconv.ErrRange. A sign is read, and left to the caller.
func Parse(s string) (int64, error) {
	digits, unit := s, int64(1)
	if cut := strings.TrimSuffix(strings.ToUpper(s), "IB"); cut != "" {
		for _, u := range units {
			if d, ok := strings.CutSuffix(cut, u.name); ok {
				digits, unit = d, u.size
			}
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return 0, strconv.ErrSyntax
	case err != nil || n > math.MaxInt64/unit || n < math.MinInt64/unit:
		return 0, strconv.ErrRange
	}
	return n * unit, nil
}

// Format writes n in the largest unit of which it is a multiple: 8, 4K, 1025K, 1G.
func Format(n int64) string {
	for _, u := range units {
		if n != 0 && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

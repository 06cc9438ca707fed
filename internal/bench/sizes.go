package bench

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed33544411/rma/internal/bytesize"
)

// MaxSize is the largest message that can be asked for, in bytes.
const MaxSize = 1 << 30

// maxSizes bounds the list; a range by powers of two cannot exceed 31.
const maxSizes = 256

// ErrSizes is wrapped by every error of ParseSizes.
var ErrSizes = errors.New("bad sizes")

// ParseSizes reads a list of message sizes in bytes, such as "8,4K,1M" or "8:4M" or
// both. Items are separated by commas; lo:hi stands for lo, 2·lo, 4·lo and so on up to
// hi; the suffixes K, M and G (also KiB, MiB, GiB; either case) are powers of 1024. Sizes
// are from 1 to MaxSize, without duplicates. The order is kept.
func ParseSizes(s string) ([]int, error) {
	if strings.TrimSpace(s) == "" {
		return nil, fmt.Errorf("%w: empty list, want for example 8,4K,1M or 8:4M", ErrSizes)
	}
	var out []int
	for item := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(item, ":")
		a, err := parseSize(lo)
		if err != nil {
			return nil, err
		}
		b := a
		if isRange {
			if b, err = parseSize(hi); err != nil {
				return nil, err
			}
			if b < a {
				return nil, fmt.Errorf("%w: range %q runs backwards", ErrSizes, strings.TrimSpace(item))
			}
		}
		for n := a; n <= b; n *= 2 {
			if slices.Contains(out, n) {
				return nil, fmt.Errorf("%w: %s occurs twice in %q", ErrSizes, FormatSize(n), s)
			}
			if out = append(out, n); len(out) > maxSizes {
				return nil, fmt.Errorf("%w: more than %d", ErrSizes, maxSizes)
			}
		}
	}
	return out, nil
}

func parseSize(s string) (int, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return 0, fmt.Errorf("%w: missing number, want for example 8,4K,1M or 8:4M", ErrSizes)
	}
	n, err := bytesize.Parse(s)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return 0, fmt.Errorf("%w: %q is not a size, want for example 64, 4K or 1M", ErrSizes, s)
	case err != nil || n > MaxSize:
		return 0, fmt.Errorf("%w: %s is out of range 1 to %s", ErrSizes, s, FormatSize(MaxSize))
	case n < 0:
		return 0, fmt.Errorf("%w: %s is negative", ErrSizes, s)
	case n == 0:
		return 0, fmt.Errorf("%w: zero is not a size to measure, the smallest is 1", ErrSizes)
	}
	return int(n), nil
}

// FormatSize formats a size as ParseSizes reads it: 8, 4K, 1M, 1G.
func FormatSize(n int) string { return bytesize.Format(int64(n)) }

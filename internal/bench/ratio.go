package bench

import "slices"

// Median is the middle of v, the mean of the two in the middle where there are
// two; 0 of nothing.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

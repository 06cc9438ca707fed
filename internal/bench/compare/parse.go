package compare

import "strconv"

// numbers reads n fields, all of which must be plausible figures: finite, not
// negative.
func numbers(fields []string, n int) ([]float64, bool) {
	if len(fields) != n {
		return nil, false
	}
	v := make([]float64, n)
	for i, f := range fields {
		x, err := strconv.ParseFloat(f, 64)
		if err != nil || !(x >= 0 && x < 1e15) {
			return nil, false
		}
		v[i] = x
	}
	return v, true
}

package compare

import "strconv"

// numbers reads n fields, all of which must be plausible figures: 0, or so large and
// so small that what is computed of them is finite.
func numbers(fields []string, n int) ([]float64, bool) {
	if len(fields) != n {
		return nil, false
	}
	v := make([]float64, n)
	for i, f := range fields {
		x, err := strconv.ParseFloat(f, 64)
		if err != nil || x != 0 && !(x > 1e-12 && x < 1e15) {
			return nil, false
		}
		v[i] = x
	}
	return v, true
}

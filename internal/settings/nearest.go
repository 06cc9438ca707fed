package settings

import (
	"slices"
	"strings"
)

// nearest returns the known name that name was probably meant to be, "" if none
// is near. Both are without prefix and in lower case.
func nearest(name string, known []string) string {
	name = strings.ReplaceAll(strings.ToLower(name), "-", "_")
	best, at := "", max(1, len(name)/3)+1
	for _, k := range known {
		d := distance(name, k)
		if d > 1 && sameWords(name, k) {
			d = 1 // a word left out, added, or moved
		}
		if d < at {
			best, at = k, d
		}
	}
	return best
}

// sameWords reports whether all words of one name are in the other.
func sameWords(a, b string) bool {
	x, y := strings.Split(a, "_"), strings.Split(b, "_")
	if len(x) > len(y) {
		x, y = y, x
	}
	return !slices.ContainsFunc(x, func(w string) bool { return !slices.Contains(y, w) })
}

// distance is how many characters must be inserted, deleted, replaced or swapped
// with their neighbour to make a of b (optimal string alignment).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

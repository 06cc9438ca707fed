// Package bytesize reads and writes the units of sizes in bytes: K, M and G for powers of
// 1024.
//
// It imports nothing of the project. What else a size may look like, and its range, is decided
// by the packages that parse it.
package bytesize

import (
	"strconv"
	"strings"
)

var units = []struct {
	name string
	size int64
}{{"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}}

// Cut removes the unit from the end of s, and returns its size in bytes: 1 if there is none.
func Cut(s string) (number string, unit int64) {
	for _, u := range units {
		if number, ok := strings.CutSuffix(s, u.name); ok {
			return number, u.size
		}
	}
	return s, 1
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

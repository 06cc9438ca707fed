// Package enum gives the values of enumerations their names.
//
// It imports nothing of the project. verbs, which does not either, has a function of its own.
package enum

import (
	"slices"
	"strconv"
)

// Name returns names[v], or kind(v) for a value without a name.
func Name[E ~uint8 | ~int](kind string, names []string, v E) string {
	if v >= 0 && int(v) < len(names) && names[v] != "" {
		return names[v]
	}
	return kind + "(" + strconv.Itoa(int(v)) + ")"
}

// Parse is the inverse of Name; it accepts only names.
func Parse[E ~uint8 | ~int](names []string, s string) (v E, ok bool) {
	i := slices.Index(names, s)
	if i < 0 || s == "" {
		return 0, false
	}
	return E(i), true
}

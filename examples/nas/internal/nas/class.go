package nas

import "fmt"

// Class is a problem size of the specification.
type Class string

// Classes are those that the benchmarks have, by size: S is for tests, W was a workstation's.
var Classes = []Class{"S", "W", "A", "B"}

// Pick returns the class's entry of a table.
func Pick[P any](c Class, table map[Class]P) (P, error) {
	p, found := table[c]
	if !found {
		return p, fmt.Errorf("class %q: want one of %s", string(c), Classes)
	}
	return p, nil
}

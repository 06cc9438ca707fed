package compare

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// Fabrics are those that there are peers on, in the order of the help text.
var Fabrics = []string{"shm", "tcp", "verbs"}

// Help is a table of the peers and of the tests that each makes on each fabric.
func Help() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, p := range Peers {
		var does []string
		for _, f := range Fabrics {
			if kinds := p.Tests[f]; slices.Equal(kinds, Kinds) {
				does = append(does, f+": all")
			} else if len(kinds) > 0 {
				does = append(does, f+": "+joined(kinds, ", "))
			}
		}
		fmt.Fprintf(t, "  %s\t%s\n  \t  %s\n", p.Name, p.About, strings.Join(does, "; "))
	}
	_ = t.Flush() // to memory
	return b.String()
}

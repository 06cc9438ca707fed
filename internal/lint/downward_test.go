package lint

import (
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"
)

// downward are the packages in which uses between files run downward: the files can be
// ordered so that each uses only declarations of those behind it.
var downward = []string{"", "eager", "fabric/tcp", "internal/initiator", "internal/message", "internal/message/hub", "rdv"}

// The order is computed, not declared, so files may be renamed and split at will. For a
// package that does not satisfy the rule yet, testdata/upward.txt has the number of pairs
// of files that violate the best order found.
func TestUsesRunDownward(t *testing.T) {
	counted, advice := map[string][]int{}, map[string]string{}
	for _, p := range checkTypes(t, downward...) {
		name, uses := packageName(p.rel), p.uses()
		order := bestOrder(uses)
		up := order.against(uses)
		counted[name] = []int{len(up)}
		var b strings.Builder
		fmt.Fprintf(&b, "%d of %d pairs of files. The order, from the top: %s\nUses that run up (pass in what is used, move it down, or join the files):\n",
			len(up), len(uses), strings.Join(order, " "))
		for _, a := range up {
			fmt.Fprintf(&b, "  %s → %s: %s\n", a.user, a.used, strings.Join(slices.Sorted(maps.Keys(uses[a])), ", "))
		}
		advice[name] = b.String()
		t.Logf("%s: %s", name, b.String())
	}
	readLimits(t, "testdata/upward.txt").check(t, counted, []int{0}, func(name string) string { return advice[name] })
}

// arrow leads from a file to another one whose declarations it uses.
type arrow struct{ user, used string }

// fileOrder lists files from the top to the bottom.
type fileOrder []string

// against returns the arrows that lead upward.
func (o fileOrder) against(uses map[arrow]map[string]bool) []arrow {
	at := map[string]int{}
	for i, f := range o {
		at[f] = i
	}
	var up []arrow
	for a := range uses {
		if at[a.user] > at[a.used] {
			up = append(up, a)
		}
	}
	slices.SortFunc(up, func(a, b arrow) int {
		return strings.Compare(a.user+" "+a.used, b.user+" "+b.used)
	})
	return up
}

// bestOrder searches for the order with the fewest upward arrows: it moves one file at a
// time to its best place until no move helps, from several initial orders, and again with
// each file put last. Equal input gives equal output.
func bestOrder(uses map[arrow]map[string]bool) fileOrder {
	names := map[string]bool{}
	out := map[string]int{}
	for a := range uses {
		names[a.user], names[a.used] = true, true
		out[a.user]++
		out[a.used]--
	}
	byName := slices.Sorted(maps.Keys(names))
	byUse := slices.Clone(byName)
	slices.SortStableFunc(byUse, func(a, b string) int { return out[b] - out[a] })
	reversed := slices.Clone(byName)
	slices.Reverse(reversed)
	var best fileOrder
	fewest := len(uses) + 1
	for _, start := range []fileOrder{byUse, byName, reversed} {
		improve(start, uses)
		if n := len(start.against(uses)); n < fewest {
			best, fewest = start, n
		}
	}
	// If no single move helps, another one after it may.
	for _, f := range byName {
		start := append(slices.DeleteFunc(slices.Clone(best), func(g string) bool { return g == f }), f)
		improve(start, uses)
		if n := len(start.against(uses)); n < fewest {
			best, fewest = start, n
		}
	}
	return best
}

// improve moves files until no single move lowers the number of upward arrows.
func improve(o fileOrder, uses map[arrow]map[string]bool) {
	// gain returns the decrease of upward arrows if upper, just above lower, moves below it.
	gain := func(upper, lower string) int {
		n := 0
		if uses[arrow{lower, upper}] != nil {
			n++
		}
		if uses[arrow{upper, lower}] != nil {
			n--
		}
		return n
	}
	for again := true; again; {
		again = false
		for i := range o {
			f, best, to := o[i], 0, i
			for j, sum := i+1, 0; j < len(o); j++ {
				if sum += gain(f, o[j]); sum > best {
					best, to = sum, j
				}
			}
			for j, sum := i-1, 0; j >= 0; j-- {
				if sum += gain(o[j], f); sum > best {
					best, to = sum, j
				}
			}
			if to != i {
				copy(o, slices.Insert(slices.Delete(slices.Clone(o), i, i+1), to, f))
				again = true
			}
		}
	}
}

// uses returns the declarations that each file uses of each other one: functions, methods,
// types, variables and constants. Fields do not count, nor does the receiver of a method:
// methods may lie beside their type.
func (p *checkedPackage) uses() map[arrow]map[string]bool {
	all := map[arrow]map[string]bool{}
	for _, f := range p.files {
		user := concept(p.fset.Position(f.Package).Filename)
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				n.Recv = nil
			case *ast.Ident:
				obj := p.info.Uses[n]
				if obj == nil || obj.Pkg() != p.types {
					break
				}
				if v, ok := obj.(*types.Var); ok && v.IsField() {
					break
				}
				if used := concept(p.fset.Position(obj.Pos()).Filename); used != user {
					a := arrow{user, used}
					if all[a] == nil {
						all[a] = map[string]bool{}
					}
					all[a][obj.Name()] = true
				}
			}
			return true
		})
	}
	return all
}

package lint

import (
	"go/ast"
	"go/token"
	"go/types"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed33544411/rma/internal/testutil"
)

// A test does not fail because the machine is slow. What ends a wait in a test, or
// bounds what one took, is at least testutil.Limit away; where a shorter time is what
// is tested, the line says so: "// deadline: reason". testutil's own helpers raise what
// is meant as a limit, and in a bubble of testing/synctest time is not the machine's.
func TestDeadlinesInTestsAreFar(t *testing.T) {
	named := durations(t)
	for _, s := range sources(t) {
		if !strings.HasSuffix(s.rel, "_test.go") || s.pkg == "internal/lint" {
			continue
		}
		lines := strings.Split(s.text, "\n")
		ast.Inspect(s.file, func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if types.ExprString(c.Fun) == "synctest.Test" {
				return false
			}
			d, bounds := named[s.pkg].bound(c)
			if !bounds || d >= testutil.Limit || d <= 0 && d != unknown {
				return true
			}
			for l := s.line(c.Pos()); l <= s.line(c.End()); l++ {
				if strings.Contains(lines[l-1], "// deadline: ") {
					return true
				}
			}
			t.Errorf("%s:%d: %s may end before a slow machine is done: use testutil.Limit, or give a reason (// deadline: …)",
				s.rel, s.line(c.Pos()), types.ExprString(c))
			return true
		})
	}
}

// unknown stands for a duration that cannot be determined to be long.
const unknown = time.Duration(math.MinInt64)

// durationsOf maps names of constants and variables of a package's tests to their
// durations, the shortest if there are several.
type durationsOf map[string]time.Duration

func durations(t *testing.T) map[string]durationsOf {
	all := map[string]durationsOf{}
	for _, s := range sources(t) {
		named := all[s.pkg]
		if named == nil {
			named = durationsOf{}
			all[s.pkg] = named
		}
		note := func(id *ast.Ident, e ast.Expr) {
			if d := named.value(e); d != unknown {
				if known, found := named[id.Name]; !found || d < known {
					named[id.Name] = d
				}
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, e := range n.Values {
					note(n.Names[i], e)
				}
			case *ast.AssignStmt:
				for i, e := range n.Rhs {
					if id, ok := n.Lhs[i].(*ast.Ident); ok && len(n.Lhs) == len(n.Rhs) {
						note(id, e)
					}
				}
			}
			return true
		})
	}
	return all
}

// bound returns the time that a call allows for something, if it is a call that does.
func (named durationsOf) bound(c *ast.CallExpr) (d time.Duration, bounds bool) {
	name := types.ExprString(c.Fun)
	arg := func(i int) time.Duration {
		if i < len(c.Args) {
			return named.value(c.Args[i])
		}
		return unknown
	}
	switch _, method, _ := strings.Cut(name, "."); {
	case name == "context.WithTimeout", name == "context.WithDeadline":
		return arg(1), true
	case name == "time.After", name == "time.NewTimer", name == "time.Now().Add":
		return arg(0), true
	case method == "SetDeadline", method == "SetReadDeadline", method == "SetWriteDeadline":
		if named.value(c.Args[0]) == unknown {
			return unknown, true
		}
	case name == "require.Eventually", name == "assert.Eventually", name == "require.Never", name == "assert.Never":
		return arg(2), true
	case (name == "require.Less" || name == "require.LessOrEqual") && strings.HasPrefix(types.ExprString(c.Args[1]), "time.Since("):
		return arg(2), true
	case name == "testutil.Within", name == "testutil.Eventually", name == "testutil.Context":
		if d := arg(1); d == unknown || d >= 5*time.Second {
			return testutil.Limit, true
		} else {
			return d, true
		}
	}
	return 0, false
}

// value returns the value of an expression of a duration or a time; a time counts as its
// distance from now, by which the call in it is judged.
func (named durationsOf) value(e ast.Expr) time.Duration {
	switch e := e.(type) {
	case *ast.BasicLit:
		if n, err := strconv.ParseInt(e.Value, 0, 64); err == nil {
			return time.Duration(n)
		}
	case *ast.Ident:
		if d, found := named[e.Name]; found {
			return d
		}
	case *ast.ParenExpr:
		return named.value(e.X)
	case *ast.UnaryExpr:
		if d := named.value(e.X); e.Op == token.SUB && d != unknown {
			return -d
		}
	case *ast.BinaryExpr:
		x, y := named.value(e.X), named.value(e.Y)
		switch {
		case x == unknown || y == unknown:
		case e.Op == token.MUL:
			return x * y //nolint:durationcheck // a constant that the source multiplies
		case e.Op == token.ADD:
			return x + y
		case e.Op == token.QUO && y != 0:
			return x / y
		}
	case *ast.CompositeLit: // time.Time{}: none
		return math.MaxInt64
	case *ast.CallExpr:
		switch name := types.ExprString(e.Fun); name {
		case "time.Now().Add", "time.Now", "time.Unix":
			return math.MaxInt64
		case "max":
			var d time.Duration
			for _, a := range e.Args {
				d = max(d, named.value(a))
			}
			return d
		}
	case *ast.SelectorExpr:
		switch types.ExprString(e) {
		case "testutil.Limit":
			return testutil.Limit
		case "time.Hour":
			return time.Hour
		case "time.Minute":
			return time.Minute
		case "time.Second":
			return time.Second
		case "time.Millisecond":
			return time.Millisecond
		case "time.Microsecond":
			return time.Microsecond
		case "time.Nanosecond":
			return time.Nanosecond
		}
	}
	return unknown
}

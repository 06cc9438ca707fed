package lint

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// A test that fails lets go of its locks first: cleanups that close an engine would wait for them until the whole
// binary is ended, without the name of the test. So there is no require between a Lock and an Unlock of the same
// block, and none in what progress.Engine.Do runs.
func TestNoAssertionsUnderLocks(t *testing.T) {
	for _, s := range sources(t) {
		if !strings.HasSuffix(s.rel, "_test.go") || s.pkg == "internal/lint" {
			continue
		}
		report := func(n ast.Node, what string) {
			if c := assertion(n); c != nil {
				t.Errorf("%s:%d: %s while the test holds %s: unlock first", s.rel, s.line(c.Pos()), types.ExprString(c.Fun), what)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BlockStmt:
				for lock, st := range heldIn(n.List) {
					report(st, lock)
				}
			case *ast.CallExpr:
				if f := types.ExprString(n.Fun); strings.HasSuffix(f, "prog.Do") {
					report(n, "the engine")
				}
			}
			return true
		})
	}
}

// heldIn yields the statements of a block between a Lock and its Unlock, with the name of the lock.
func heldIn(block []ast.Stmt) func(yield func(string, ast.Stmt) bool) {
	return func(yield func(string, ast.Stmt) bool) {
		held := ""
		for _, st := range block {
			if e, ok := st.(*ast.ExprStmt); ok {
				call := types.ExprString(e.X)
				if lock, found := strings.CutSuffix(call, ".Lock()"); found && held == "" {
					held = lock
					continue
				}
				if held != "" && call == held+".Unlock()" {
					held = ""
				}
			} else if d, ok := st.(*ast.DeferStmt); ok && types.ExprString(d.Call) == held+".Unlock()" {
				held = ""
			}
			if held != "" && !yield(held, st) {
				return
			}
		}
	}
}

// assertion returns a call in n that can end the test: those that get it do, as require.True and testutil.Eventually.
func assertion(n ast.Node) (found *ast.CallExpr) {
	ast.Inspect(n, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok && found == nil {
			of, name, _ := strings.Cut(types.ExprString(c.Fun), ".")
			ends := slices.Contains([]string{"t", "tb", "b"}, of) && (strings.HasPrefix(name, "Fatal") || name == "FailNow")
			if ends || len(c.Args) > 0 && slices.Contains([]string{"t", "tb"}, types.ExprString(c.Args[0])) {
				found = c
			}
		}
		return found == nil
	})
	return found
}

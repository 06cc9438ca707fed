package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// hotMark is the last line of the comment of a function on the hot path.
const hotMark = "// Hot path."

// hotAllow excuses a line of such a function; the reason follows it.
const hotAllow = "//hot:allow "

// A function on the hot path contains no allocation, lock, log, closure or defer.
// Statements that return or panic leave the path, and so does the construction of an error:
// they are exempt. The tests that count allocations find the costs that are not visible in
// one function.
func TestHotPathIsCheap(t *testing.T) {
	pkgs, allowed := hotMarks(t)
	for _, p := range checkTypes(t, pkgs...) {
		for _, f := range p.files {
			rel := strings.TrimPrefix(p.rel+"/"+filepath.Base(p.fset.Position(f.Package).Filename), "/")
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || !isHot(fn) || fn.Body == nil {
					continue
				}
				h := hotFunc{p: p, fn: fn, empty: map[types.Object]bool{}}
				h.check()
				for _, c := range h.costs {
					at := place{rel, p.fset.Position(c.pos).Line}
					if _, excused := allowed[at]; excused {
						allowed[at] = true
					} else {
						t.Errorf("%s:%d: %s is on the hot path: %s (or say why: %sreason)", rel, at.line, fn.Name.Name, c.what, hotAllow)
					}
				}
			}
			for at, used := range allowed {
				if at.rel == rel && !used {
					t.Errorf("%s:%d: %shas nothing to excuse", at.rel, at.line, hotAllow)
				}
			}
		}
	}
}

// place is a line of a file.
type place struct {
	rel  string
	line int
}

// hotMarks returns the packages that have marked functions, and the excused lines,
// initially unused.
func hotMarks(t *testing.T) (pkgs []string, allowed map[place]bool) {
	allowed = map[place]bool{}
	for _, s := range sources(t) {
		if s.pkg == "internal/lint" {
			continue
		}
		lines := strings.Split(s.text, "\n")
		for i, line := range lines {
			if _, reason, found := strings.Cut(line, hotAllow); found && strings.TrimSpace(reason) != "" {
				allowed[place{s.rel, i + 1}] = false
			}
			if strings.Contains(line, "Hot path.") && (line != hotMark || !strings.HasPrefix(lines[i+1], "func ")) {
				t.Errorf("%s:%d: the mark is %q, the last line of a function's comment", s.rel, i+1, hotMark)
			}
		}
		for _, d := range s.file.Decls {
			// Files of verbs with import "C" are not type-checked here.
			if fn, ok := d.(*ast.FuncDecl); ok && isHot(fn) && s.pkg != "verbs" && !slices.Contains(pkgs, s.pkg) {
				pkgs = append(pkgs, s.pkg)
			}
		}
	}
	return pkgs, allowed
}

func isHot(fn *ast.FuncDecl) bool {
	return fn.Doc != nil && fn.Doc.List[len(fn.Doc.List)-1].Text == hotMark
}

// hotFunc checks one function.
type hotFunc struct {
	p     *checkedPackage
	fn    *ast.FuncDecl
	empty map[types.Object]bool // slices that begin without capacity
	costs []cost
}

type cost struct {
	pos  token.Pos
	what string
}

func (h *hotFunc) found(n ast.Node, format string, args ...any) {
	h.costs = append(h.costs, cost{n.Pos(), fmt.Sprintf(format, args...)})
}

func (h *hotFunc) check() {
	ast.Inspect(h.fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ReturnStmt:
			return false
		case *ast.FuncLit:
			h.found(n, "a closure")
			return false
		case *ast.DeferStmt:
			h.found(n, "defer")
		case *ast.GoStmt:
			h.found(n, "a new goroutine")
		case *ast.UnaryExpr:
			if lit, ok := n.X.(*ast.CompositeLit); ok && n.Op == token.AND && !h.isError(n) {
				h.found(lit, "&%s{} allocates if it escapes", types.ExprString(lit.Type))
			}
		case *ast.CompositeLit:
			switch h.under(n).(type) {
			case *types.Slice, *types.Map:
				h.found(n, "a literal that allocates")
			}
		case *ast.BinaryExpr:
			if b, ok := h.under(n).(*types.Basic); ok && n.Op == token.ADD && b.Info()&types.IsString != 0 && h.p.info.Types[n].Value == nil {
				h.found(n, "strings are joined")
			}
		case *ast.AssignStmt:
			for _, l := range n.Lhs {
				if x, ok := l.(*ast.IndexExpr); ok {
					if _, ok := h.under(x.X).(*types.Map); ok {
						h.found(l, "a map is written")
					}
				}
			}
		case *ast.ValueSpec:
			for _, id := range n.Names {
				h.empty[h.p.info.Defs[id]] = n.Values == nil
			}
		case *ast.CallExpr:
			return h.call(n)
		}
		return true
	})
}

func (h *hotFunc) under(e ast.Expr) types.Type {
	if t := h.p.info.Types[e].Type; t != nil {
		return t.Underlying()
	}
	return nil
}

// isError reports whether an expression has an error type.
func (h *hotFunc) isError(e ast.Expr) bool {
	t := h.p.info.Types[e].Type
	return t != nil && types.Implements(t, types.Universe.Lookup("error").Type().Underlying().(*types.Interface))
}

// call reports whether to check the arguments.
func (h *hotFunc) call(c *ast.CallExpr) bool {
	tv := h.p.info.Types[c.Fun]
	switch {
	case tv.IsBuiltin():
		switch name := types.ExprString(c.Fun); name {
		case "panic":
			return false
		case "make", "new":
			h.found(c, "%s allocates", name)
		case "append":
			if id, ok := c.Args[0].(*ast.Ident); ok && h.empty[h.p.info.Uses[id]] {
				h.found(c, "append to %s, which begins without room", id.Name)
			}
		}
		return true
	case tv.IsType():
		return true
	}
	if fn := h.callee(c); fn != nil && fn.Pkg() != nil {
		switch path := fn.Pkg().Path(); {
		case path == "fmt" || path == "log" || path == "log/slog":
			if !h.isError(c) {
				h.found(c, "it calls %s.%s", fn.Pkg().Name(), fn.Name())
			}
			return false
		case path == "sync" && (strings.HasSuffix(fn.Name(), "Lock") || fn.Name() == "Wait"):
			h.found(c, "it locks")
		}
	}
	if sig, ok := h.under(c.Fun).(*types.Signature); ok {
		h.arguments(c, sig)
	}
	return true
}

func (h *hotFunc) callee(c *ast.CallExpr) *types.Func {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		fn, _ := h.p.info.Uses[f].(*types.Func)
		return fn
	case *ast.SelectorExpr:
		fn, _ := h.p.info.Uses[f.Sel].(*types.Func)
		return fn
	}
	return nil
}

// arguments finds arguments whose conversion to an interface allocates.
func (h *hotFunc) arguments(c *ast.CallExpr, sig *types.Signature) {
	for i, a := range c.Args {
		if sig.Variadic() && i >= sig.Params().Len()-1 {
			break
		}
		tv := h.p.info.Types[a]
		if !types.IsInterface(sig.Params().At(i).Type()) || tv.Type == nil || tv.Value != nil || types.IsInterface(tv.Type) || tv.IsNil() {
			continue
		}
		if _, isParam := sig.Params().At(i).Type().(*types.TypeParam); isParam {
			continue
		}
		switch tv.Type.Underlying().(type) {
		case *types.Pointer, *types.Chan, *types.Signature, *types.Map:
		default:
			h.found(a, "%s becomes an interface", types.ExprString(a))
		}
	}
}

package lint

import (
	"go/ast"
	"sort"
	"strings"
	"testing"
)

// suites are packages for tests of this module.
var suites = map[string]bool{"fabric/fabrictest": true, "fabric/linktest": true}

// go test runs the examples, so their output is true. In the root package, which
// applications import, every exported type has an example of its own, "ExampleT" or
// "ExampleT_Method". The packages below each have at least one; `go test -v -run Examples
// ./internal/lint` lists the types that no example of theirs uses.
func TestExportedTypesHaveExamples(t *testing.T) {
	types := map[string][]string{}        // by package
	has := map[string]map[string]bool{}   // what Examples are named after
	shows := map[string]map[string]bool{} // names that the code of their files uses
	for _, s := range sources(t) {
		if strings.Contains("/"+s.pkg+"/", "/internal/") || s.file.Name.Name == "main" || suites[s.pkg] ||
			strings.HasPrefix(s.pkg, "examples/") || strings.HasPrefix(s.pkg, "tests/") {
			continue
		}
		test := strings.HasSuffix(s.rel, "_test.go")
		if !test {
			if types[s.pkg] == nil {
				types[s.pkg] = []string{}
			}
			for _, d := range s.file.Decls {
				if d, ok := d.(*ast.GenDecl); ok {
					for _, spec := range d.Specs {
						if ts, ok := spec.(*ast.TypeSpec); ok && ts.Name.IsExported() {
							types[s.pkg] = append(types[s.pkg], ts.Name.Name)
						}
					}
				}
			}
			continue
		}
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Example") {
				continue
			}
			if has[s.pkg] == nil {
				has[s.pkg], shows[s.pkg] = map[string]bool{}, map[string]bool{}
			}
			name, _, _ := strings.Cut(strings.TrimPrefix(fn.Name.Name, "Example"), "_")
			has[s.pkg][name] = true
			ast.Inspect(s.file, func(n ast.Node) bool { // helpers of the Example included
				if sel, ok := n.(*ast.SelectorExpr); ok {
					shows[s.pkg][sel.Sel.Name] = true
				}
				return true
			})
		}
	}
	var pkgs []string
	for pkg := range types {
		pkgs = append(pkgs, pkg)
	}
	sort.Strings(pkgs)
	for _, pkg := range pkgs {
		var missing []string
		for _, name := range types[pkg] {
			if !has[pkg][name] && (pkg == "" || !shows[pkg][name]) {
				missing = append(missing, name)
			}
		}
		sort.Strings(missing)
		switch {
		case pkg == "" && len(missing) > 0:
			t.Errorf("package rma: no Example of %s", strings.Join(missing, ", "))
		case len(has[pkg]) == 0:
			t.Errorf("%s has no Example", pkg)
		case len(missing) > 0:
			t.Logf("%s: %d of %d types are in no Example: %s", pkg, len(missing), len(types[pkg]), strings.Join(missing, ", "))
		}
	}
}

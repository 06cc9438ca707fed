package lint

import (
	"go/ast"
	"sort"
	"strings"
	"testing"
)

// Every exported type of what applications import has an Example that runs in
// go test: "ExampleT" or "ExampleT_Method". The root package must be complete;
// for the packages below it, which are for whoever builds on them, the log of
// `go test -v -run Examples ./internal/lint` lists what is missing.
func TestExportedTypesHaveExamples(t *testing.T) {
	types, has := map[string][]string{}, map[string]map[string]bool{}
	for _, s := range sources(t) {
		if strings.Contains("/"+s.pkg+"/", "/internal/") || s.file.Name.Name == "main" {
			continue
		}
		test := strings.HasSuffix(s.rel, "_test.go")
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if ts, ok := spec.(*ast.TypeSpec); ok && !test && ts.Name.IsExported() {
						types[s.pkg] = append(types[s.pkg], ts.Name.Name)
					}
				}
			case *ast.FuncDecl:
				if name, ok := strings.CutPrefix(d.Name.Name, "Example"); ok && test && d.Recv == nil {
					name, _, _ = strings.Cut(name, "_")
					if has[s.pkg] == nil {
						has[s.pkg] = map[string]bool{}
					}
					has[s.pkg][name] = true
				}
			}
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
			if !has[pkg][name] {
				missing = append(missing, name)
			}
		}
		sort.Strings(missing)
		switch {
		case len(missing) == 0:
		case pkg == "":
			t.Errorf("package rma: no Example of %s", strings.Join(missing, ", "))
		default:
			t.Logf("%s: %d of %d types have no Example: %s", pkg, len(missing), len(types[pkg]), strings.Join(missing, ", "))
		}
	}
}

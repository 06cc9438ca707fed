package lint

import (
	"go/ast"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every fuzz target has a saved corpus: inputs in testdata/fuzz, which unit tests run, too.
// A corpus without a target is an error.
func TestFuzzTargetsHaveACorpus(t *testing.T) {
	packages, targets := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		packages[s.pkg] = true
		if !strings.HasSuffix(s.rel, "_test.go") {
			continue
		}
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Fuzz") {
				continue
			}
			dir := filepath.Join("../..", s.pkg, "testdata/fuzz", fn.Name.Name)
			targets[dir] = true
			if inputs, err := os.ReadDir(dir); err != nil || len(inputs) == 0 {
				t.Errorf("%s: %s has no input in %s/testdata/fuzz/%[2]s", s.rel, fn.Name.Name, s.pkg)
			}
		}
	}
	for pkg := range packages {
		corpora, _ := filepath.Glob(filepath.Join("../..", pkg, "testdata/fuzz/*"))
		for _, c := range corpora {
			if !targets[c] {
				t.Errorf("%s belongs to no fuzz target", c)
			}
		}
	}
}

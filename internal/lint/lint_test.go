package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/seed33544411/rma"

// layers gives every package its floor (docs/architecture.md). The longest prefix counts. A
// package imports only from floors below its own, or from its own family (same first path
// element, same floor).
var layers = map[string]int{
	"internal/cpu": -1, "internal/enum": -1, "internal/bytesize": -1,
	"logp": 0, "flowctl": 0, "internal/bubble": 0, "internal/event": 0, "internal/fifo": 0, "internal/offheap": 0, "internal/owned": 0, "internal/settings": 0, "internal/tempdir": 0, "internal/topo": 0,
	"verbs": 1, "internal/bulk": 1, "internal/testutil": 1,
	"fabric": 2,
	"mr":     3, "internal/poller": 3,
	"gather": 4, "scatter": 4, "sampling": 4,
	"eager": 5, "rdv": 5,
	"internal/bringup": 6, "internal/progress": 6, "internal/wireup": 6, "internal/links": 6, "internal/launch": 6, "internal/jobenv": 6, "internal/message": 6, "internal/pending": 6, "internal/initiator": 6, "internal/onesided": 6,
	"":       7,
	"rmanet": 8, "locks": 8, "coll": 8, "cmd": 8, "examples": 8, "tests": 8, "internal/bench": 8, "internal/jobtest": 8, "internal/lint": 8,
}

func layer(rel string) (floor int, family string, ok bool) {
	for p := rel; ; {
		if l, found := layers[p]; found && (p != "" || rel == "") {
			return l, p, true
		}
		i := strings.LastIndexByte(p, '/')
		if i < 0 {
			return 0, "", false
		}
		p = p[:i]
	}
}

type source struct {
	rel  string // slash-separated path inside the module
	pkg  string // directory part
	file *ast.File
	text string
	fset *token.FileSet
}

// line returns the line of a position in the file.
func (s source) line(p token.Pos) int { return s.fset.Position(p).Line }

// sources returns the files of this module, parsed once.
func sources(t *testing.T) []source {
	out, err := parsed()
	require.NoError(t, err)
	require.NotEmpty(t, out)
	return out
}

var parsed = sync.OnceValues(func() (out []source, err error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); p != root && (strings.HasPrefix(n, ".") || n == "testdata" || n == "out" || n == "bin") {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil && p != root {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(fset, p, text, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		rel = filepath.ToSlash(rel)
		dir := filepath.ToSlash(filepath.Dir(rel))
		if dir == "." {
			dir = ""
		}
		out = append(out, source{rel: rel, pkg: dir, file: f, text: string(text), fset: fset})
		return nil
	})
	return out, err
})

func TestImportsPointDown(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sources(t) {
		from, family, ok := layer(s.pkg)
		if !ok {
			t.Errorf("%s: package %q has no floor: add it to layers in internal/lint", s.rel, s.pkg)
			continue
		}
		used[family] = true
		for _, im := range s.file.Imports {
			path, _ := strconv.Unquote(im.Path.Value)
			if path != module && !strings.HasPrefix(path, module+"/") {
				continue
			}
			rel := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
			to, toFamily, ok := layer(rel)
			if !ok {
				t.Errorf("%s imports %s, which has no floor", s.rel, path)
				continue
			}
			if to < from || to == from && (family == toFamily || from == 8 || strings.HasSuffix(s.rel, "_test.go")) {
				continue
			}
			if rel == "internal/testutil" && strings.HasSuffix(s.rel, "_test.go") {
				continue // tests of every floor use it
			}
			if family == "rdv" && toFamily == "eager" {
				continue // control messages of a rendezvous travel in a ring
			}
			if from == 6 && to == 6 {
				continue // progress, wireup, links and launch use each other
			}
			t.Errorf("%s (floor %d) imports %s (floor %d): imports point down", s.rel, from, path, to)
		}
	}
	for name := range layers {
		if !used[name] {
			t.Errorf("layers in internal/lint has %q, which does not exist", name)
		}
	}
}

func TestCgoAndUnsafeStayInTheirRooms(t *testing.T) {
	for _, s := range sources(t) {
		for _, im := range s.file.Imports {
			switch im.Path.Value {
			case `"C"`:
				if s.pkg != "verbs" {
					t.Errorf(`%s: import "C" belongs in verbs only`, s.rel)
				}
			case `"unsafe"`:
				if !strings.HasSuffix(s.rel, "_unsafe.go") && !strings.HasSuffix(s.rel, "_test.go") && s.pkg != "verbs" {
					t.Errorf("%s: unsafe belongs in *_unsafe.go files", s.rel)
				}
			}
		}
	}
}

// A sleep is not synchronisation. Where a test must let real time pass (a
// timer under test, a fault's duration) the line says why: "// sleep: reason".
func TestNoSleepInTests(t *testing.T) {
	for _, s := range sources(t) {
		if !strings.HasSuffix(s.rel, "_test.go") || s.pkg == "internal/lint" {
			continue
		}
		for i, line := range strings.Split(s.text, "\n") {
			if strings.Contains(line, "time.Sleep(") && !strings.Contains(line, "// sleep: ") {
				t.Errorf("%s:%d: time.Sleep in a test without a reason (// sleep: …)", s.rel, i+1)
			}
		}
	}
}

// Every package has a comment with its purpose.
func TestEveryPackageHasAComment(t *testing.T) {
	has := map[string]bool{}
	for _, s := range sources(t) {
		if strings.HasSuffix(s.rel, "_test.go") {
			continue
		}
		if _, seen := has[s.pkg]; !seen {
			has[s.pkg] = false
		}
		if s.file.Doc != nil && len(strings.TrimSpace(s.file.Doc.Text())) > 20 {
			has[s.pkg] = true
		}
	}
	for pkg, ok := range has {
		if !ok {
			t.Errorf("package %q has no package comment", pkg)
		}
	}
}

// docs/architecture.md has every package on its floor, and no package that does not exist.
func TestArchitectureNamesEveryPackage(t *testing.T) {
	text, err := os.ReadFile("../../docs/architecture.md")
	require.NoError(t, err)
	listed := map[string]int{}
	for _, row := range regexp.MustCompile(`(?m)^\| (-?[0-9]) \| ([^|]*) \|`).FindAllStringSubmatch(string(text), -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[2], -1) {
			pkg := name[1]
			if pkg == "rma" { // the root
				pkg = ""
			}
			floor, err := strconv.Atoi(row[1])
			require.NoError(t, err)
			listed[pkg] = floor
		}
	}
	seen := map[string]bool{}
	for _, s := range sources(t) {
		if seen[s.pkg] {
			continue
		}
		seen[s.pkg] = true
		floor, _, _ := layer(s.pkg)
		if at, ok := listed[s.pkg]; !ok || at != floor {
			t.Errorf("package %q (floor %d) is not on that floor in the table of docs/architecture.md", s.pkg, floor)
		}
	}
	for name := range listed {
		if !seen[name] {
			t.Errorf("docs/architecture.md names package %q, which does not exist", name)
		}
	}
}

// A method whose comment reserves it to the owner asserts that: the tag rmadebug detects
// other callers. Package pending does not know the engine; its callers assert.
func TestOwnersMethodsAssertIt(t *testing.T) {
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil || s.pkg == "internal/pending" || !strings.Contains(fn.Doc.Text(), "Owner's.") {
				continue
			}
			asserts := false
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				asserts = asserts || ok && (sel.Sel.Name == "AssertOwned" || sel.Sel.Name == "Assert")
				return true
			})
			if !asserts {
				t.Errorf("%s: %s is the owner's and does not assert it: call AssertOwned or owned.Holder.Assert first", s.rel, fn.Name.Name)
			}
		}
	}
}

package lint

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// Types should be readable in one place: at most 40 methods, in at most 5 files.
var typeBound = []int{40, 5}

// Larger types are listed in testdata/types.txt with their numbers of methods and files.
func TestTypesAreSmall(t *testing.T) {
	methods := map[string]map[string]bool{}
	files := map[string]map[string]bool{}
	for _, s := range sources(t) {
		if strings.HasSuffix(s.rel, "_test.go") {
			continue
		}
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil {
				continue
			}
			name := packageName(s.pkg) + "." + receiver(fn)
			if methods[name] == nil {
				methods[name], files[name] = map[string]bool{}, map[string]bool{}
			}
			methods[name][fn.Name.Name] = true
			files[name][concept(s.rel)] = true
		}
	}
	counted := map[string][]int{}
	for name := range methods {
		counted[name] = []int{len(methods[name]), len(files[name])}
	}
	readLimits(t, "testdata/types.txt").check(t, counted, typeBound, func(name string) string {
		return fmt.Sprintf("(methods, files) split the type, or join files of one concept: %s",
			strings.Join(slices.Sorted(maps.Keys(files[name])), " "))
	})
}

// packageName returns a package's name for readers: rma, internal/message.
func packageName(rel string) string {
	if rel == "" {
		return "rma"
	}
	return rel
}

// receiver returns the name of the type that a method belongs to.
func receiver(fn *ast.FuncDecl) string {
	var id *ast.Ident
	ast.Inspect(fn.Recv.List[0].Type, func(n ast.Node) bool {
		if found, ok := n.(*ast.Ident); ok && id == nil {
			id = found
		}
		return id == nil
	})
	return id.Name
}

// variants are the endings of file names for one concept's part on one system, or its
// unsafe part.
var variants = []string{
	"_linux", "_darwin", "_freebsd", "_bsd", "_unix", "_windows", "_other", "_none", "_portable", "_kqueue", "_epoll",
	"_amd64", "_arm64", "_asm", "_le", "_be", "_cgo", "_on", "_off", "_syscall", "_sleep", "_unsafe",
}

// concept returns a file's name without its variant: variants count once.
func concept(rel string) string {
	name := strings.TrimSuffix(path.Base(rel), ".go")
	for again := true; again; {
		again = false
		for _, v := range variants {
			if short, found := strings.CutSuffix(name, v); found && short != "" {
				name, again = short, true
			}
		}
	}
	return name + ".go"
}

package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkedPackage is a package of this module with types.
type checkedPackage struct {
	rel   string
	fset  *token.FileSet
	files []*ast.File
	info  types.Info
	types *types.Package
}

// checkTypes type-checks packages, as they are built here without tests, against the
// compiler's export data of their imports.
func checkTypes(t *testing.T, rels ...string) []*checkedPackage {
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles"}
	for _, rel := range rels {
		args = append(args, "./"+rel)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = "../..", os.Stderr
	list, err := cmd.Output()
	require.NoError(t, err, "go list")
	type listed struct {
		ImportPath, Export, Dir string
		GoFiles                 []string
	}
	all := map[string]listed{}
	for d := json.NewDecoder(bytes.NewReader(list)); ; {
		var p listed
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		all[p.ImportPath] = p
	}
	fset := token.NewFileSet()
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(all[path].Export)
	})}
	var out []*checkedPackage
	for _, rel := range rels {
		p := &checkedPackage{rel: rel, fset: fset, info: types.Info{
			Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{},
		}}
		path := strings.TrimSuffix(module+"/"+rel, "/")
		for _, name := range all[path].GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(all[path].Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
			require.NoError(t, err)
			p.files = append(p.files, f)
		}
		p.types, err = conf.Check(path, fset, p.files, &p.info)
		require.NoError(t, err)
		out = append(out, p)
	}
	return out
}

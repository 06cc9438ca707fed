package rma

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/observability.md lists every line that an engine logs, with level, message and keys,
// and no others.
func TestLogIsDocumented(t *testing.T) {
	text, err := os.ReadFile("docs/observability.md")
	require.NoError(t, err)
	told := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (\\w+) \\| `([^`]+)` \\| ([^|]+) \\|").FindAllStringSubmatch(string(text), -1) {
		told[fmt.Sprintf("%s %q %s", row[1], row[2], strings.NewReplacer("`", "", ",", "").Replace(row[3]))] = true
	}
	var files []string
	for _, dir := range []string{".", "internal/wireup", "internal/bringup"} {
		some, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		files = append(files, some...)
	}
	said := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		logs(t, f, said)
	}
	require.Equal(t, told, said)
}

// logs collects the log lines of a file.
func logs(t *testing.T, f *ast.File, said map[string]bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		fn, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		on, ok := fn.X.(*ast.SelectorExpr)
		if !ok || on.Sel.Name != "Logger" && on.Sel.Name != "Log" {
			return true
		}
		words := []string{strings.ToLower(fn.Sel.Name), literal(t, call.Args[0])}
		for i := 1; i < len(call.Args); i += 2 {
			key, err := strconv.Unquote(literal(t, call.Args[i]))
			require.NoError(t, err)
			words = append(words, key)
		}
		said[strings.Join(words, " ")] = true
		return true
	})
}

func literal(t *testing.T, e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	require.True(t, ok && lit.Kind == token.STRING, "messages and keys of logs are literals")
	return lit.Value
}

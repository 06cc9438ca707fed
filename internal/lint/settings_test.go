package lint

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/settings"
)

// A variable that code reads, sets or mentions is declared in internal/settings: it then
// has bounds, a reason, a place in the reference page, and is not reported as a
// misspelling. Tests use RMA_TEST_… for their own.
func TestVariablesAreDeclared(t *testing.T) {
	variable := regexp.MustCompile(`\bRMA_[A-Z0-9_]*[A-Z0-9]\b`)
	seen := map[string]bool{}
	for _, s := range sources(t) {
		if strings.HasPrefix(s.rel, "internal/settings/") || s.pkg == "internal/lint" || s.rel == "config_test.go" || s.rel == "internal/bench/host/host_test.go" { // where misspellings are under test
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				return true
			}
			for _, name := range variable.FindAllString(text, -1) {
				seen[name] = true
				if !settings.Known(name) {
					t.Errorf("%s: %s is not declared in internal/settings (variables of tests begin with %s)", s.rel, name, settings.TestPrefix)
				}
			}
			return true
		})
	}
	for _, s := range settings.All() {
		if !seen[s.Env] && s.Env != settings.EnvConfig && s.Env != settings.EnvStrict {
			t.Errorf("%s is declared in internal/settings, and nothing uses it", s.Env)
		}
	}
}

// The reference page has exactly the launchers' variables that code reads.
func TestForeignVariablesAreDeclared(t *testing.T) {
	variable := regexp.MustCompile(`^((OMPI|PMIX?|MPIR?|SLURMD?|JOB|XDG)_\w+|HOSTNAME)$`)
	seen, declared := map[string]bool{}, map[string]bool{}
	for _, f := range settings.ForeignVars {
		declared[f.Env] = true
	}
	for _, s := range sources(t) {
		if s.pkg != "internal/jobenv" || strings.HasSuffix(s.rel, "_test.go") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			if name, err := strconv.Unquote(lit.Value); err == nil && variable.MatchString(name) {
				seen[name] = true
				if !declared[name] {
					t.Errorf("%s: %s is not in settings.ForeignVars", s.rel, name)
				}
			}
			return true
		})
	}
	for name := range declared {
		if !seen[name] {
			t.Errorf("settings.ForeignVars has %s, which nothing reads", name)
		}
	}
}

// Pages, scripts and the Makefile mention declared variables only.
func TestVariablesInPagesAreDeclared(t *testing.T) {
	variable := regexp.MustCompile(`\bRMA_[A-Z0-9_]*[A-Z0-9]\b`)
	texts := pages(t)
	for _, name := range []string{"../../Makefile", "../../.ci/run", "../../tests/softroce/run"} {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		texts[name] = string(b)
	}
	for page, text := range texts {
		for _, name := range variable.FindAllString(text, -1) {
			if !settings.Known(name) {
				t.Errorf("%s: %s is no setting", page, name)
			}
		}
	}
}

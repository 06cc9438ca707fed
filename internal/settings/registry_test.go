package settings

import (
	"flag"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/configuration.md")

const pageFile = "../../docs/configuration.md"

// The reference page is what the registry says.
func TestPageIsFresh(t *testing.T) {
	if *update {
		require.NoError(t, os.WriteFile(pageFile, []byte(Page()), 0o644))
	}
	have, err := os.ReadFile(pageFile)
	require.NoError(t, err)
	if string(have) != Page() {
		t.Fatal("docs/configuration.md is stale: run go generate ./internal/settings")
	}
}

// Every declaration is complete, and its default fits its type.
func TestRegistry(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range All() {
		require.Regexp(t, regexp.MustCompile(`^RMA_[A-Z][A-Z0-9_]*[A-Z0-9]$`), s.Env)
		for _, name := range []string{s.Env, s.Field} {
			require.False(t, name != "" && seen[name], "%s twice", name)
			seen[name] = true
		}
		require.Same(t, s, Lookup(s.Env))
		require.Same(t, s, lookupName(s.Name()))
		require.NotEmpty(t, s.What, s.Env)
		require.NotEmpty(t, s.Where, s.Env)
		require.NotEmpty(t, s.Since, s.Env)
		require.True(t, (s.Default == "") != (s.Else == ""), "%s: a default, or words for it", s.Env)
		require.NotRegexp(t, `[.|\n]$`, s.What, s.Env)
		require.NotContains(t, s.What+s.Why+s.Else, "|", "%s: breaks the table", s.Env)
		if s.Default != "" {
			_, err := s.Type.parse(s.Default)
			require.NoError(t, err, "%s: default %s", s.Env, s.Default)
		}
		if s.Group == Engine {
			require.NotEmpty(t, s.Why, "%s: why that default?", s.Env)
		}
		if s.Group >= Job {
			require.True(t, s.EnvOnly, s.Env)
		}
		_, err := os.Stat("../../" + s.Where)
		require.True(t, err == nil || s.Where == "rma", "%s: no package %s", s.Env, s.Where)
	}
}

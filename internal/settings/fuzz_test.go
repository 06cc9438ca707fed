package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whatever a file holds: no panic, errors name a line that exists, and what was
// read is what is written in it when quoted again.
func FuzzFile(f *testing.F) {
	for _, s := range []string{"", "a = b", `a = "b # c" # d`, "fabric = tcp\ndepth=5\n\x00", "a=\"\\", "\ufeff#\r\n=="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.Count(text, "\n") + 1
		as, es := parseFile("f", text)
		for _, a := range as {
			if a.line < 1 || a.line > lines || a.name == "" || a.value == "" {
				t.Fatalf("%+v", a)
			}
		}
		if len(as)+len(es) > lines {
			t.Fatalf("%d lines, %d settings and %d errors", lines, len(as), len(es))
		}
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		v, err := Load(Source{Environ: []string{"RMA_CONFIG=" + path}})
		if v == nil {
			t.Fatal("no values")
		}
		if err != nil && err.Error() == "" {
			t.Fatal("an error that says nothing")
		}
	})
}

func FuzzNearest(f *testing.F) {
	f.Add("fabirc")
	f.Add("")
	f.Add("ibv__")
	f.Fuzz(func(t *testing.T, name string) {
		if len(name) > 1000 {
			return
		}
		if n := nearest(name, names(true)); n != "" && lookupName(n) == nil {
			t.Fatal(n)
		}
	})
}

package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

//go:embed testdata/hook.go
var hookSource []byte

// hookPath is the hook's import path in the copy of GOROOT, where it may use what is
// internal to this module.
const hookPath = "suites/github_com/seed33544411/rma/hook"

// stand is the place where suites run.
type stand struct{ dir, goroot string }

// stdPath is the import path that a package of a module has in the copy of GOROOT: its
// first element has no dot, as those of the standard library.
func stdPath(path string) string {
	first, rest, _ := strings.Cut(path, "/")
	return "suites/" + strings.ReplaceAll(first, ".", "_") + "/" + rest
}

// quoted is an import path of a module as it stands in a source.
var quoted = regexp.MustCompile(`"[a-z0-9-]+\.[a-z]+/[A-Za-z0-9./_-]+"`)

func rewritten(src []byte) []byte {
	return quoted.ReplaceAllFunc(src, func(q []byte) []byte {
		return []byte(`"` + stdPath(string(q[1:len(q)-1])) + `"`)
	})
}

// newStand copies GOROOT to dir and puts the hook into it.
func newStand(dir string) (*stand, error) {
	s := &stand{dir, filepath.Join(dir, "goroot")}
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	root := strings.TrimSpace(string(out))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(s.goroot); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.goroot, 0o777); err != nil {
		return nil, err
	}
	for _, name := range []string{"bin", "pkg", "lib", "VERSION", "go.env", "test", "misc"} {
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(s.goroot, name)); err != nil {
			return nil, err
		}
	}
	if err := copyTree(filepath.Join(root, "src"), s.src()); err != nil {
		return nil, err
	}
	return s, errors.Join(s.patchNet(), s.copyModule())
}

func (s *stand) src(elem ...string) string {
	return filepath.Join(append([]string{s.goroot, "src"}, elem...)...)
}

// patchNet gives package net its two variables.
func (s *stand) patchNet() error {
	const vars = "package net\n\nimport \"context\"\n\nvar (\n" +
		"\tHookListen func(network, address string) (Listener, error, bool)\n" +
		"\tHookDial   func(ctx context.Context, to Addr) (Conn, error, bool)\n)\n"
	if err := os.WriteFile(s.src("net", "hook_suites.go"), []byte(vars), 0o666); err != nil {
		return err
	}
	const (
		listens = "func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (Listener, error) {\n"
		dials   = "\tla := sd.LocalAddr\n\tswitch ra := ra.(type) {\n\tcase *TCPAddr:\n\t\tla, _ := la.(*TCPAddr)\n\t\tif sd.MultipathTCP()" // behind the dial's tracer
	)
	return errors.Join(
		edit{"net/dial.go", listens, listens + hooked("HookListen", "network, address")}.apply(s.src()),
		edit{"net/dial.go", dials, hooked("HookDial", "ctx, ra") + dials}.apply(s.src()))
}

func hooked(name, args string) string {
	return fmt.Sprintf("\tif %[1]s != nil {\n\t\tif x, err, ok := %[1]s(%s); ok {\n\t\t\treturn x, err\n\t\t}\n\t}\n", name, args)
}

// copyModule puts rmanet, what it imports, and the hook into the copy.
func (s *stand) copyModule() error {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,Standard", "./rmanet", "./internal/wireup")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath, Dir string
			Standard        bool
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if p.Standard {
			continue
		}
		if err := copyPackage(p.Dir, s.src(filepath.FromSlash(stdPath(p.ImportPath)))); err != nil {
			return err
		}
	}
	dir := s.src(filepath.FromSlash(hookPath))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "hook.go"), rewritten(hookSource), 0o666)
}

// copyPackage copies the files of one directory, without tests, for the standard library.
func copyPackage(from, to string) error {
	es, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o777); err != nil {
		return err
	}
	for _, e := range es {
		if !e.Type().IsRegular() || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			return err
		}
		if strings.HasSuffix(e.Name(), ".go") {
			b = rewritten(b)
		}
		if err := os.WriteFile(filepath.Join(to, e.Name()), b, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// copyTree copies a directory; what it makes can be written.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		dst := filepath.Join(to, rel)
		switch {
		case e.IsDir():
			return os.MkdirAll(dst, 0o777)
		case !e.Type().IsRegular():
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(dst, b, 0o666)
	})
}

// apply makes the edit below dir. Text that is not there is an error: the suite is
// another than the edit is for.
func (e edit) apply(dir string) error {
	file := filepath.Join(dir, filepath.FromSlash(e.file))
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !strings.Contains(string(b), e.old) {
		return fmt.Errorf("%s: no %q to replace", file, e.old)
	}
	return os.WriteFile(file, []byte(strings.ReplaceAll(string(b), e.old, e.new)), 0o666)
}

// prepare fetches the suite's sources, makes its edits, and hooks its packages. It
// returns the directory to run go test in.
func (s *stand) prepare(su suite) (string, error) {
	dir := s.src()
	if su.module != "" {
		out, err := exec.Command("go", "mod", "download", "-json", su.module).Output()
		var m struct{ Dir, Error string }
		if jerr := json.Unmarshal(out, &m); jerr != nil || m.Error != "" {
			return "", fmt.Errorf("go mod download %s: %s: %w", su.module, m.Error, errors.Join(err, jerr))
		}
		dir = filepath.Join(s.dir, "mod", filepath.FromSlash(su.name))
		if err := errors.Join(os.RemoveAll(dir), copyTree(m.Dir, dir)); err != nil {
			return "", err
		}
	}
	for _, e := range su.edits {
		if err := e.apply(dir); err != nil {
			return "", err
		}
	}
	for _, p := range su.pkgs {
		at := filepath.Join(dir, filepath.FromSlash(p))
		name, err := packageName(at)
		if err != nil {
			return "", err
		}
		// An external test package: the hook imports what is under test, perhaps.
		src := fmt.Sprintf("package %s_test\n\nimport _ %q\n", name, hookPath)
		if err := os.WriteFile(filepath.Join(at, "zz_suites_test.go"), []byte(src), 0o666); err != nil {
			return "", err
		}
	}
	return dir, nil
}

var clause = regexp.MustCompile(`(?m)^package (\w+)`)

// packageName is the name that the files in dir agree on.
func packageName(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		if m := clause.FindSubmatch(b); m != nil && string(m[1]) != "main" && !strings.Contains(string(b), "//go:build ignore") {
			return strings.TrimSuffix(string(m[1]), "_test"), nil
		}
	}
	return "", fmt.Errorf("%s: no package", dir)
}

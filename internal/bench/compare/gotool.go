package compare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Peers' programs that are Go modules are built from the source tree, or found in PATH
// after `go install`. They are in a module of their own, below goModule.

const (
	goModule = "github.com/seed33544411/rma/bench/peers"
	goDir    = "bench/peers" // in the source tree
	goTool   = "go"
)

// ErrTool reports a Go program that is not built because there is no Go toolchain.
var ErrTool = errors.New("no Go toolchain: " + goTool + " is not in PATH")

// sourceTree returns the directory of goModule if this program runs in a source tree or its
// binary is in one; else "".
func sourceTree() string {
	var from []string
	if d, err := os.Getwd(); err == nil {
		from = append(from, d)
	}
	if e, err := os.Executable(); err == nil {
		from = append(from, filepath.Dir(e))
	}
	for _, dir := range from {
		for last := ""; dir != last; last, dir = dir, filepath.Dir(dir) {
			at := filepath.Join(dir, goDir)
			b, err := os.ReadFile(filepath.Join(at, "go.mod"))
			if err == nil && bytes.HasPrefix(b, []byte("module "+goModule+"\n")) {
				return at
			}
		}
	}
	return ""
}

// buildable reports whether the Go program of a need can be built here, which takes the
// source tree and a toolchain. Without the toolchain alone the error is ErrTool.
func (n *Need) buildable() (bool, error) {
	if n.Go == "" || sourceTree() == "" {
		return false, nil
	}
	if _, err := exec.LookPath(goTool); err != nil {
		return false, ErrTool
	}
	return true, nil
}

// build builds the Go programs of a peer into dir if this is the source tree. Otherwise
// it links dir to the installed programs.
func (p *Peer) build(ctx context.Context, dir string) error {
	for i := range p.Needs {
		n := &p.Needs[i]
		if can, _ := n.buildable(); !can {
			at, err := n.look()
			if err == nil {
				err = os.Symlink(at, filepath.Join(dir, n.Program))
			}
			if err != nil {
				return err
			}
			continue
		}
		c := exec.CommandContext(ctx, goTool, "build", "-o", dir+string(filepath.Separator), n.Go)
		c.Dir = sourceTree()
		c.Env = append(os.Environ(), "GOWORK=off")
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %.500s", n.Program, err, bytes.TrimSpace(out))
		}
	}
	return nil
}

// installGo installs the Go programs that peers lack, at the latest version of their
// module. Go's directory of binaries need not be in PATH, see look.
func installGo(ctx context.Context, fabric string, peers []*Peer, w io.Writer) error {
	args := []string{goTool, "install"}
	for _, p := range peers {
		var m *MissingError
		if p.Tests[fabric] == nil || !errors.As(p.Missing(fabric), &m) {
			continue
		}
		if m.Tool != nil {
			return fmt.Errorf("%w %s: %w", ErrInstall, strings.Join(m.Programs, ", "), m.Tool)
		}
		for _, path := range m.Go {
			if path += "@latest"; !slices.Contains(args, path) {
				args = append(args, path)
			}
		}
	}
	if len(args) == 2 {
		return nil
	}
	if _, err := exec.LookPath(goTool); err != nil {
		return fmt.Errorf("%w %s: %w", ErrInstall, strings.Join(args[2:], ", "), ErrTool)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, installTime, fmt.Errorf("%s: %w in %v", goTool, ErrStuck, installTime))
	defer cancel()
	fmt.Fprintln(w, strings.Join(args, " "))
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("%w: %s: %w: %.500s", ErrInstall, goTool, err, bytes.TrimSpace(out))
	}
	return nil
}

// look finds a program in PATH, and a Go program also in the directory of `go install`.
func (n *Need) look() (string, error) {
	at, err := exec.LookPath(n.Program)
	if err == nil && n.Header != "" {
		err = n.compiles(at)
	}
	if err == nil || n.Go == "" {
		return at, err
	}
	out, err := exec.Command(goTool, "env", "GOBIN", "GOPATH").Output()
	if err != nil {
		return "", err
	}
	bin, path, _ := strings.Cut(strings.TrimSuffix(string(out), "\n"), "\n")
	if bin == "" {
		list := filepath.SplitList(path)
		if len(list) == 0 {
			return "", exec.ErrNotFound
		}
		bin = filepath.Join(list[0], "bin")
	}
	return exec.LookPath(filepath.Join(bin, n.Program))
}

// built returns the path of a program in dir if it was built or linked there, else its name.
func built(dir, program string) string {
	at := filepath.Join(dir, program)
	if _, err := os.Stat(at); dir == "" || err != nil {
		return program
	}
	return at
}

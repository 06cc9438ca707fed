package compare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Programs of peers that are Go modules are built from the source tree, or found in
// PATH after `go install`. They are a module of their own, below goModule.

const (
	goModule = "github.com/seed33544411/rma/bench/peers"
	goFolder = "bench/peers" // in the source tree
	goTool   = "go"
)

// ErrTool is a Go program that could be built were there a Go toolchain.
var ErrTool = errors.New("no Go toolchain: " + goTool + " is not in PATH")

// sourceTree is the folder of goModule where this program runs in a source tree, or
// lies in one; else "".
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
			at := filepath.Join(dir, goFolder)
			b, err := os.ReadFile(filepath.Join(at, "go.mod"))
			if err == nil && bytes.HasPrefix(b, []byte("module "+goModule+"\n")) {
				return at
			}
		}
	}
	return ""
}

// buildable says whether the Go program of a need can be built here; an error says
// why not, or nothing can be built at all.
func (n *Need) buildable() (bool, error) {
	if n.Go == "" || sourceTree() == "" {
		return false, nil
	}
	if _, err := exec.LookPath(goTool); err != nil {
		return false, ErrTool
	}
	return true, nil
}

// build builds the Go programs of a peer into dir, if this is the source tree.
// Otherwise those of PATH are used.
func (p *Peer) build(ctx context.Context, dir string) error {
	for i := range p.Needs {
		n := &p.Needs[i]
		if can, _ := n.buildable(); !can {
			continue // found in PATH by Missing
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

// InstallGo installs the Go programs that are missing, by `go install`, at a version
// of their module ("latest"). They then lie in Go's folder of programs, which is to be
// in PATH.
func (e *MissingError) InstallGo(ctx context.Context, version string) error {
	if len(e.Go) == 0 {
		return nil
	}
	if _, err := exec.LookPath(goTool); err != nil {
		return ErrTool
	}
	args := []string{"install"}
	for _, path := range e.Go {
		args = append(args, path+"@"+version)
	}
	if out, err := exec.CommandContext(ctx, goTool, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %.500s", goTool, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// built is a program of dir if it was built there, else of PATH.
func built(dir, program string) string {
	if dir == "" {
		return program
	}
	at := filepath.Join(dir, program)
	if _, err := os.Stat(at); err != nil {
		return program
	}
	return at
}

package compare

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Need is a program that a peer runs.
type Need struct {
	Program string   // searched in PATH
	Header  string   // for a C compiler: the header that it must find
	Package string   // Debian package of the program
	Go      string   // or the import path of a Go program, see gotool.go
	Fabrics []string // fabrics on which it is needed; empty: all
}

// MissingError names the packages of missing programs. It unwraps to ErrMissing.
type MissingError struct {
	Peer               string
	Programs, Packages []string
	Go                 []string // import paths of Go programs
	Tool               error    // ErrTool, if the toolchain is all that they lack
}

func (e *MissingError) Error() string {
	s := fmt.Sprintf("%s: %s: %v: ", e.Peer, strings.Join(e.Programs, ", "), ErrMissing)
	if e.Tool != nil {
		return s + e.Tool.Error()
	}
	var how []string
	if len(e.Packages) > 0 {
		how = append(how, "apt-get install -y --no-install-recommends "+strings.Join(e.Packages, " "))
	}
	for _, path := range e.Go {
		how = append(how, "go install "+path+"@latest")
	}
	return s + "--install, or " + strings.Join(how, "; ")
}

// Unwrap returns ErrMissing, and ErrTool if that is the reason.
func (e *MissingError) Unwrap() []error {
	if e.Tool != nil {
		return []error{ErrMissing, e.Tool}
	}
	return []error{ErrMissing}
}

// String returns the program, and the header that it must find.
func (n *Need) String() string {
	if n.Header == "" {
		return n.Program
	}
	return n.Program + " with " + n.Header
}

// compiles reports why the C compiler at path at cannot compile with the header: a
// compiler wrapper may be installed without compiler or header.
func (n *Need) compiles(at string) error {
	ctx, cancel := context.WithTimeout(context.Background(), compileTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, at, "-fsyntax-only", "-include", n.Header, "-x", "c", os.DevNull).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %w: %.500s", n, err, bytes.TrimSpace(out))
	}
	return nil
}

// Missing reports the missing programs for a fabric as a *MissingError.
func (p *Peer) Missing(fabric string) error {
	e := &MissingError{Peer: p.Name}
	for _, n := range p.Needs {
		if len(n.Fabrics) > 0 && !slices.Contains(n.Fabrics, fabric) {
			continue
		}
		if _, err := n.look(); err == nil {
			continue
		}
		can, err := n.buildable()
		if can {
			continue
		}
		e.Programs = append(e.Programs, n.String())
		if n.Go != "" {
			e.Go, e.Tool = append(e.Go, n.Go), err
			continue
		}
		if !slices.Contains(e.Packages, n.Package) {
			e.Packages = append(e.Packages, n.Package)
		}
	}
	if len(e.Programs) == 0 {
		return nil
	}
	return e
}

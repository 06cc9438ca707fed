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
	Program string   // looked for in PATH
	Header  string   // of a C compiler: what it must find
	Package string   // Debian's, which brings it
	Go      string   // or the import path of a Go program, see gotool.go
	Fabrics []string // that it is needed on; none: on all
}

// MissingError says which packages bring programs that are not there. It unwraps
// to ErrMissing.
type MissingError struct {
	Peer               string
	Programs, Packages []string
	Go                 []string // import paths of Go programs
	Tool               error    // ErrTool, if that is all that is in the way of them
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

// Unwrap returns ErrMissing, and ErrTool if that is why.
func (e *MissingError) Unwrap() []error {
	if e.Tool != nil {
		return []error{ErrMissing, e.Tool}
	}
	return []error{ErrMissing}
}

// String is the program, and the header that it is to find.
func (n *Need) String() string {
	if n.Header == "" {
		return n.Program
	}
	return n.Program + " with " + n.Header
}

// compiles says whether the C compiler at works and finds the header: what wraps a
// compiler may be there without either.
func (n *Need) compiles(at string) error {
	ctx, cancel := context.WithTimeout(context.Background(), compileTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, at, "-fsyntax-only", "-include", n.Header, "-x", "c", os.DevNull).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %w: %.500s", n, err, bytes.TrimSpace(out))
	}
	return nil
}

// Missing says whether the programs for a fabric are there; the error is a
// *MissingError.
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

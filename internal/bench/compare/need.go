package compare

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// Need is a program that a peer runs.
type Need struct {
	Program string   // looked for in PATH
	Package string   // Debian's, which brings it
	Fabrics []string // that it is needed on; none: on all
}

// MissingError says which packages bring programs that are not there. It unwraps
// to ErrMissing.
type MissingError struct {
	Peer               string
	Programs, Packages []string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s: %s: %v: --install, or apt-get install -y --no-install-recommends %s", e.Peer,
		strings.Join(e.Programs, ", "), ErrMissing, strings.Join(e.Packages, " "))
}

// Unwrap returns ErrMissing.
func (e *MissingError) Unwrap() error { return ErrMissing }

// Missing says whether the programs for a fabric are there; the error is a
// *MissingError.
func (p *Peer) Missing(fabric string) error {
	e := &MissingError{Peer: p.Name}
	for _, n := range p.Needs {
		if len(n.Fabrics) > 0 && !slices.Contains(n.Fabrics, fabric) {
			continue
		}
		if _, err := exec.LookPath(n.Program); err == nil {
			continue
		}
		e.Programs = append(e.Programs, n.Program)
		if !slices.Contains(e.Packages, n.Package) {
			e.Packages = append(e.Packages, n.Package)
		}
	}
	if len(e.Programs) == 0 {
		return nil
	}
	return e
}

package compare

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// Peer is another library's measuring program. A new peer is one file and one
// line in Peers.
type Peer struct {
	Name    string // as --peers takes it
	Program string // looked for in PATH
	Package string // Debian's, which brings it

	// VersionArgs make VersionProgram say its version in the first line.
	VersionProgram string
	VersionArgs    []string

	// Env is the environment that makes the program use the link of a fabric.
	// An error says that it cannot.
	Env func(fabric string, at Place) ([]string, error)

	// Server and Client are the arguments of the two sides; the client prints. An
	// error says that there is no such test.
	Server func(port int) []string
	Client func(t Test, addr string, port, iters int) ([]string, error)

	// Pin adds to the arguments what keeps a side on a processor.
	Pin func(args []string, cpu int) []string

	// Parse reads the client's output.
	Parse func(out []byte, t Test) (float64, error)

	// Trial is how many iterations the first run has, which finds out how many
	// fill the time.
	Trial int
}

// Place says where the fabric is.
type Place struct {
	Addr   string // address of this host on it; of shm, the loopback
	Device string // verbs: the adapter, its port, its GID
	Port   int
	GID    int
	Cores  []int // one for each side; fewer than two: nothing is pinned
}

// Peers are those there are.
var Peers = []*Peer{ucx}

// Names are their names.
func Names() (out []string) {
	for _, p := range Peers {
		out = append(out, p.Name)
	}
	return out
}

// ErrPeer is an unknown peer, ErrMissing one whose program is not installed,
// ErrFabric one that cannot use the fabric, ErrOutput one that printed no figure,
// ErrStuck one that came to no end.
var (
	ErrPeer    = errors.New("unknown peer")
	ErrMissing = errors.New("program is not installed")
	ErrFabric  = errors.New("peer cannot use the fabric")
	ErrOutput  = errors.New("no figure in the output")
	ErrStuck   = errors.New("came to no end")
)

// MissingError says which package brings a program. It unwraps to ErrMissing.
type MissingError struct{ Program, Package string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s: %v: apt-get install -y --no-install-recommends %s", e.Program, ErrMissing, e.Package)
}

// Unwrap returns ErrMissing.
func (e *MissingError) Unwrap() error { return ErrMissing }

// Find returns the peers of the names.
func Find(names []string) ([]*Peer, error) {
	var out []*Peer
	for _, n := range names {
		i := slices.IndexFunc(Peers, func(p *Peer) bool { return p.Name == n })
		if i < 0 {
			return nil, fmt.Errorf("%w %q: want some of %s", ErrPeer, n, strings.Join(Names(), ", "))
		}
		if slices.Contains(out, Peers[i]) {
			return nil, fmt.Errorf("%w: %s comes twice", ErrPeer, n)
		}
		out = append(out, Peers[i])
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: want some of %s", ErrPeer, strings.Join(Names(), ", "))
	}
	return out, nil
}

// Check says whether the program is there.
func (p *Peer) Check() error {
	if _, err := exec.LookPath(p.Program); err != nil {
		return &MissingError{p.Program, p.Package}
	}
	return nil
}

// version is the first line of what the program says of itself, or nothing.
func (p *Peer) version() string {
	out, err := exec.Command(p.VersionProgram, p.VersionArgs...).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimLeft(line, "# ")
}

package compare

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"text/tabwriter"
)

// Peer is another library and its measuring programs, as a table of functions: a
// new peer is one file and one line in Peers.
type Peer struct {
	Name  string // as --peers takes it
	About string // what is run, for the help text

	// Needs are the programs that are run, and what brings them.
	Needs []Need

	// Tests are the kinds of tests that it makes, by fabric.
	Tests map[string][]Kind

	// Version is a program and its arguments that print the peer's version in the
	// first line. Empty: it does not say.
	Version []string

	// Prepare makes what no package brings, once before a comparison: a program
	// compiled. Its result lies in dir, which is the peer's own until the comparison
	// ends. Nil: there is nothing to make.
	Prepare func(ctx context.Context, dir string) error

	// Plan says how one run is started. An error says that the place cannot be
	// used. It starts nothing.
	Plan func(j Job) (Plan, error)

	// Parse reads the figure, in the test's unit, out of the client's standard output.
	// Errors are *OutputError.
	Parse func(out []byte, j Job) (float64, error)

	// WarmUp is how many iterations a run of n makes besides those that it times: they
	// count for processor time. Nil: none.
	WarmUp func(k Kind, n int) int

	// Trial is how many iterations the first run has, which finds out how many
	// fill the time.
	Trial int
}

// Job is one run.
type Job struct {
	Fabric string // shm, tcp or verbs
	Place
	Test  Test
	Iters int
	Port  int    // TCP, which nothing listens on
	Dir   string // what Prepare has filled; a run may write files there, named after its port
}

// Place says where the fabric is.
type Place struct {
	Addr       string // address of this host on it; of shm, the loopback
	Device     string // verbs: the adapter, its port, its GID
	DevicePort int
	GID        int
	Cores      []int // one for each side; fewer than two: nothing is pinned
}

// Core is the processor of a side, and false if nothing is pinned.
func (p *Place) Core(side int) (int, bool) {
	if len(p.Cores) < 2 {
		return 0, false
	}
	return p.Cores[side], true
}

// The sides of a run. The client begins the measurement and prints.
const (
	clientSide = iota
	serverSide
)

// Plan is how one run is started.
type Plan struct {
	// Env is added to the environment of both processes: it restricts the library
	// to the fabric.
	Env []string

	// Server and Client are a program and its arguments each. The client is started
	// when the server listens: on Job.Port, or on the Unix socket at Socket. No
	// server: the client is a launcher that starts both sides, and pins them.
	Server, Client []string
	Socket         string

	// PinsItself says that the programs keep themselves on processors.
	PinsItself bool
}

// Peers are those there are.
var Peers = []*Peer{ucx, libfabric, openmpi, mpich, netpipe, raw, perftest, shmipcPeer, grpcPeer, netPeer, netBatch}

// All is the name that stands for every peer that is installed.
const All = "all"

// Names are their names.
func Names() (out []string) {
	for _, p := range Peers {
		out = append(out, p.Name)
	}
	return out
}

// ErrPeer is an unknown peer, ErrMissing one whose program is not installed,
// ErrFabric one that cannot use the fabric, ErrRefused one that does not make the
// test, ErrOutput one that printed no figure, ErrStuck one that came to no end.
var (
	ErrPeer    = errors.New("unknown peer")
	ErrMissing = errors.New("program is not installed")
	ErrFabric  = errors.New("peer cannot use the fabric")
	ErrRefused = errors.New("peer does not make this test")
	ErrOutput  = errors.New("no figure in the output")
	ErrStuck   = errors.New("came to no end")
)

// OutputError is output that does not say what it should. It unwraps to ErrOutput.
type OutputError struct {
	Program string
	Want    string // what was looked for
	Line    string // what is there instead: the line in question, or the last one
}

func (e *OutputError) Error() string {
	return fmt.Sprintf("%s: %v: want %s, there is %.200q", e.Program, ErrOutput, e.Want, e.Line)
}

// Unwrap returns ErrOutput.
func (e *OutputError) Unwrap() error { return ErrOutput }

// Find returns the peers of the names; All stands for all of them.
func Find(names []string) ([]*Peer, error) {
	if len(names) == 1 && names[0] == All {
		return Peers, nil
	}
	var out []*Peer
	for _, n := range names {
		i := slices.IndexFunc(Peers, func(p *Peer) bool { return p.Name == n })
		if i < 0 {
			return nil, fmt.Errorf("%w %q: want %s, or some of %s", ErrPeer, n, All, strings.Join(Names(), ", "))
		}
		if slices.Contains(out, Peers[i]) {
			return nil, fmt.Errorf("%w: %s occurs twice", ErrPeer, n)
		}
		out = append(out, Peers[i])
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: want some of %s", ErrPeer, strings.Join(Names(), ", "))
	}
	return out, nil
}

// Does says whether the peer makes tests of a kind over a fabric; the error says
// which it makes.
func (p *Peer) Does(fabric string, k Kind) error {
	kinds, has := p.Tests[fabric]
	switch {
	case !has:
		return fmt.Errorf("%s over %s: %w", p.Name, fabric, ErrFabric)
	case !slices.Contains(kinds, k):
		return fmt.Errorf("%s: %s over %s: %w: want %s", p.Name, k, fabric, ErrRefused, joined(kinds, ", "))
	}
	return nil
}

func joined(kinds []Kind, sep string) string {
	var s []string
	for _, k := range kinds {
		s = append(s, string(k))
	}
	return strings.Join(s, sep)
}

// version is the first line of what the peer says of itself, or nothing.
func (p *Peer) version(ctx context.Context, dir string) string {
	if len(p.Version) == 0 {
		return ""
	}
	out, err := exec.CommandContext(ctx, built(dir, p.Version[0]), p.Version[1:]...).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(strings.TrimLeft(line, "# "))
}

// Fabrics are those that there are peers on, in the order of the help text.
var Fabrics = []string{"shm", "tcp", "verbs"}

// Help is a table of the peers and of the tests that each makes on each fabric.
func Help() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, p := range Peers {
		var does []string
		for _, f := range Fabrics {
			if kinds := p.Tests[f]; slices.Equal(kinds, Kinds) {
				does = append(does, f+": all")
			} else if len(kinds) > 0 {
				does = append(does, f+": "+joined(kinds, ", "))
			}
		}
		fmt.Fprintf(t, "  %s\t%s\n  \t  %s\n", p.Name, p.About, strings.Join(does, "; "))
	}
	_ = t.Flush() // to memory
	return b.String()
}

package compare

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Peer is another library with its measuring programs, as a table of functions. A new peer
// is one file and one entry in Peers.
type Peer struct {
	Name  string // name for --peers
	About string // description of the programs for the help text

	// Needs are the programs that are run, and their packages.
	Needs []Need

	// Tests are the kinds of tests that the peer supports, by fabric.
	Tests map[string][]Kind

	// Version is a program with arguments whose first line of output is the peer's version.
	// Empty if there is none.
	Version []string

	// Prepare makes programs that no package contains, such as compiled ones, once before
	// a comparison. It makes them in dir, which is the peer's until the comparison ends.
	// May be nil.
	Prepare func(ctx context.Context, dir string) error

	// Plan returns how one run is started. An error says why the place cannot be used. It
	// starts nothing.
	Plan func(j Job) (Plan, error)

	// Parse reads the figure, in the test's unit, from the client's standard output. Errors
	// are *OutputError.
	Parse func(out []byte, j Job) (float64, error)

	// WarmUp returns the number of iterations that a run of n makes in addition to the
	// timed ones; they count for processor time. Nil: none.
	WarmUp func(k Kind, n int) int

	// Trial is the number of iterations of the first run, from which the number that fills
	// the time is computed.
	Trial int
}

// Job is one run.
type Job struct {
	Fabric string // shm, tcp or verbs
	Place
	Test  Test
	Iters int
	Port  int           // a TCP port without a listener
	Limit time.Duration // after which the run is killed
	Dir   string        // directory of Prepare; a run may write files there, named after its port
}

// Place describes the fabric on this machine.
type Place struct {
	Addr       string // address of this host on the fabric; for shm, the loopback
	Device     string // verbs: the adapter, its port, its GID
	DevicePort int
	GID        int
	Cores      []int // one for each side; with fewer than two, nothing is pinned
}

// Core returns the processor of a side, and false if nothing is pinned.
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

// Plan is the commands and environment of one run.
type Plan struct {
	// Env is added to the environment of both processes; it restricts the library to the
	// fabric.
	Env []string

	// Server and Client are command lines. The client is started when the server listens,
	// on Job.Port or on the Unix socket Socket. Without a server, the client is a launcher
	// that starts and pins both sides.
	Server, Client []string
	Socket         string

	// PinsItself says that the programs pin themselves to processors.
	PinsItself bool
}

// Peers are the known peers.
var Peers = []*Peer{ucx, libfabric, openmpi, mpich, netpipe, raw, perftest, shmipcPeer, grpcPeer, netPeer, netBatch}

// All is the name for all installed peers.
const All = "all"

// Names returns the names of Peers.
func Names() (out []string) {
	for _, p := range Peers {
		out = append(out, p.Name)
	}
	return out
}

// ErrPeer is an unknown peer, ErrMissing one whose program is not installed, ErrFabric one
// that cannot use the fabric, ErrRefused one that does not support the test, ErrOutput one
// that printed no figure, ErrStuck one that did not end in time.
var (
	ErrPeer    = errors.New("unknown peer")
	ErrMissing = errors.New("program is not installed")
	ErrFabric  = errors.New("peer cannot use the fabric")
	ErrRefused = errors.New("peer does not support this test")
	ErrOutput  = errors.New("no result in the output")
	ErrStuck   = errors.New("did not end")
)

// OutputError reports output without the expected figure. It unwraps to ErrOutput.
type OutputError struct {
	Program string
	Want    string // expected output
	Line    string // the wrong line, or the last one
}

func (e *OutputError) Error() string {
	return fmt.Sprintf("%s: %v: want %s, there is %.200q", e.Program, ErrOutput, e.Want, e.Line)
}

// Unwrap returns ErrOutput.
func (e *OutputError) Unwrap() error { return ErrOutput }

// Find returns the peers of these names; All stands for all of them.
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

// Does reports whether the peer supports tests of a kind over a fabric; the error lists the
// kinds that it supports.
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

// version returns the first line of the peer's version output, or "".
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

// Fabrics are the fabrics for which there are peers, in the order of the help text.
var Fabrics = []string{"shm", "tcp", "verbs"}

// Help returns a table of the peers with their tests on each fabric.
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

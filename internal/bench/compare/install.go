package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// installTime bounds an installation, which downloads packages.
const installTime = 15 * time.Minute

// ErrInstall reports a requested installation that failed.
var ErrInstall = errors.New("cannot install")

// Install installs the Debian packages that peers lack on a fabric and, by `go install`,
// the Go programs that are not built from a source tree. The output of the installers goes
// to w. It does nothing if nothing is missing.
func Install(ctx context.Context, fabric string, peers []*Peer, w io.Writer) error {
	if err := install(ctx, fabric, peers, w, os.Geteuid() == 0); err != nil {
		return err
	}
	return installGo(ctx, fabric, peers, w)
}

func install(ctx context.Context, fabric string, peers []*Peer, w io.Writer, root bool) error {
	names := lacking(fabric, peers)
	if len(names) == 0 {
		return nil
	}
	args := append([]string{"apt-get", "install", "-y", "--no-install-recommends"}, names...)
	if _, err := exec.LookPath(args[0]); err != nil {
		return fmt.Errorf("%w %s: no apt-get: neither Debian nor a derivative", ErrInstall, strings.Join(names, ", "))
	}
	if !root {
		return fmt.Errorf("%w without being root: sudo %s", ErrInstall, strings.Join(args, " "))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, installTime, fmt.Errorf("apt-get: %w in %v", ErrStuck, installTime))
	defer cancel()
	fmt.Fprintln(w, strings.Join(args, " "))
	var out bounded
	err := run(command(ctx, args, []string{"DEBIAN_FRONTEND=noninteractive"}, &out, &out))
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("%w: apt-get: %w%s (if the package lists are old, run apt-get update)", ErrInstall, err, tail(&out))
	}
	if rest := lacking(fabric, peers); len(rest) > 0 {
		return fmt.Errorf("%w %s: installed, but its programs were not found", ErrInstall, strings.Join(rest, ", "))
	}
	return nil
}

// lacking returns the packages of missing programs.
func lacking(fabric string, peers []*Peer) (names []string) {
	for _, p := range peers {
		var m *MissingError
		if p.Tests[fabric] == nil || !errors.As(p.Missing(fabric), &m) {
			continue
		}
		for _, list := range m.Packages {
			for _, n := range strings.Fields(list) {
				if !slices.Contains(names, n) {
					names = append(names, n)
				}
			}
		}
	}
	return names
}

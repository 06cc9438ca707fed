//go:build unix

package compare

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// apt puts a fake apt-get into PATH.
func apt(t *testing.T, script string) (dir string) {
	dir = t.TempDir()
	t.Setenv("PATH", dir+":/bin:/usr/bin")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "apt-get"), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	return dir
}

func TestInstall(t *testing.T) {
	ctx := testutil.Context(t, time.Minute)
	peer := func(program, packages string) *Peer {
		return &Peer{Name: "p", Needs: []Need{{Program: program, Package: packages}}, Tests: map[string][]Kind{"shm": {Lat}}}
	}
	a, b := peer("no-such-program-a", "one two"), peer("no-such-program-b", "two")
	dir := apt(t, `echo "$DEBIAN_FRONTEND $@" > `+"$(dirname $0)/said; for p in a b; do printf '#!/bin/sh\\n' > $(dirname $0)/no-such-program-$p; chmod +x $(dirname $0)/no-such-program-$p; done")
	var w bytes.Buffer
	require.NoError(t, install(ctx, "tcp", []*Peer{a, b}, &w, true), "they do nothing on tcp")
	require.Empty(t, w.String())
	require.ErrorContains(t, install(ctx, "shm", []*Peer{a, b}, &w, false), "sudo apt-get install -y --no-install-recommends one two")
	require.NoFileExists(t, filepath.Join(dir, "said"))
	require.NoError(t, install(ctx, "shm", []*Peer{a, b}, &w, true))
	require.Contains(t, w.String(), "apt-get install -y --no-install-recommends one two")
	said, err := os.ReadFile(filepath.Join(dir, "said"))
	require.NoError(t, err)
	require.Equal(t, "noninteractive install -y --no-install-recommends one two\n", string(said))
	require.NoError(t, os.Remove(filepath.Join(dir, "said")))
	require.NoError(t, install(ctx, "shm", []*Peer{a, b}, &w, true), "all is there")
	require.NoFileExists(t, filepath.Join(dir, "said"))
}

// A compiler wrapper may be installed without the header of its library: Debian's packages
// of launchers contain it.
func TestInstallBringsHeaders(t *testing.T) {
	ctx := testutil.Context(t, time.Minute)
	p := &Peer{Name: "p", Needs: []Need{{Program: "wrapper", Header: "thing.h", Package: "libthing-dev gcc"}}, Tests: map[string][]Kind{"shm": {Lat}}}
	dir := apt(t, `touch $(dirname $0)/thing.h`)
	wrapper := "#!/bin/sh\n" + `[ "$3" = thing.h ] && [ -e "$(dirname $0)/thing.h" ] || { echo thing.h: No such file >&2; exit 1; }` + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "wrapper"), []byte(wrapper), 0o755))
	err := p.Missing("shm")
	require.ErrorIs(t, err, ErrMissing)
	require.ErrorContains(t, err, "wrapper with thing.h")
	var w bytes.Buffer
	require.NoError(t, install(ctx, "shm", []*Peer{p}, &w, true))
	require.Contains(t, w.String(), "libthing-dev gcc")
	require.NoError(t, p.Missing("shm"))
}

func TestInstallFails(t *testing.T) {
	ctx := testutil.Context(t, time.Minute)
	p := &Peer{Name: "p", Needs: []Need{{Program: "no-such-program-c", Package: "three"}}, Tests: map[string][]Kind{"shm": {Lat}}}
	var w bytes.Buffer
	apt(t, "echo E: Unable to locate package three >&2; exit 100")
	err := install(ctx, "shm", []*Peer{p}, &w, true)
	require.ErrorIs(t, err, ErrInstall)
	require.ErrorContains(t, err, "Unable to locate package three")
	apt(t, "exit 0")
	require.ErrorContains(t, install(ctx, "shm", []*Peer{p}, &w, true), "were not found")
	t.Setenv("PATH", t.TempDir())
	require.ErrorContains(t, install(ctx, "shm", []*Peer{p}, &w, true), "no apt-get")
}

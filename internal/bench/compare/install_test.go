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

// apt puts a program apt-get in PATH.
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

func TestInstallFails(t *testing.T) {
	ctx := testutil.Context(t, time.Minute)
	p := &Peer{Name: "p", Needs: []Need{{Program: "no-such-program-c", Package: "three"}}, Tests: map[string][]Kind{"shm": {Lat}}}
	var w bytes.Buffer
	apt(t, "echo E: Unable to locate package three >&2; exit 100")
	err := install(ctx, "shm", []*Peer{p}, &w, true)
	require.ErrorIs(t, err, ErrInstall)
	require.ErrorContains(t, err, "Unable to locate package three")
	apt(t, "exit 0")
	require.ErrorContains(t, install(ctx, "shm", []*Peer{p}, &w, true), "are not there")
	t.Setenv("PATH", t.TempDir())
	require.ErrorContains(t, install(ctx, "shm", []*Peer{p}, &w, true), "no apt-get")
}

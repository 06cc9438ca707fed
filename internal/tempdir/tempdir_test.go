//go:build linux

package tempdir_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/tempdir"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// holder makes a directory, writes its path, and keeps it until its input ends.
var holder = testutil.NewChild("holder", func(args []string, in *bufio.Reader, out io.Writer) error {
	d, err := tempdir.New(args[0], "x-")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(d.Path, "data"), []byte("data"), 0o600); err != nil {
		return err
	}
	fmt.Fprintln(out, d.Path)
	_, _ = io.Copy(io.Discard, in)
	return d.Close()
})

func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range all {
		out = append(out, filepath.Join(dir, e.Name()))
	}
	return out
}

// The directory of a process that was killed goes with the next New, those of living
// processes and of others stay.
func TestKilled(t *testing.T) {
	parent := t.TempDir()
	other := filepath.Join(parent, "x-of-another-program")
	require.NoError(t, os.Mkdir(other, 0o700))
	link := filepath.Join(parent, "x-link")
	elsewhere := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "lock"), nil, 0o600))
	require.NoError(t, os.Symlink(elsewhere, link))

	live, killed := holder.Start(t, parent), holder.Start(t, parent)
	lives := live.Line(t, time.Minute)
	remains := killed.Line(t, time.Minute)
	require.ElementsMatch(t, []string{other, link, lives, remains}, names(t, parent))
	killed.Kill()
	_ = killed.Wait(time.Minute) // its error is the signal
	require.DirExists(t, remains)

	d, err := tempdir.New(parent, "x-")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{other, link, lives, d.Path}, names(t, parent))
	require.FileExists(t, filepath.Join(lives, "data"))
	require.FileExists(t, filepath.Join(elsewhere, "lock"))
	require.NoError(t, d.Close())
	require.NoError(t, live.In.Close())
	require.NoError(t, live.Wait(time.Minute))
	require.ElementsMatch(t, []string{other, link}, names(t, parent))
}

// No sweep removes a directory that New has returned, also if it finds it before it is
// locked.
func TestSweepsBesideNew(t *testing.T) {
	parent := t.TempDir()
	end := make(chan struct{})
	var sweeps, makers sync.WaitGroup
	sweeps.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
				tempdir.Sweep(parent, "x-")
			}
		}
	})
	for range 4 {
		makers.Go(func() {
			for range 100 {
				d, err := tempdir.New(parent, "x-")
				if err != nil {
					t.Error(err)
					return
				}
				if err := os.WriteFile(filepath.Join(d.Path, "data"), nil, 0o600); err != nil {
					t.Error(err)
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	makers.Wait()
	close(end)
	sweeps.Wait()
	require.Empty(t, names(t, parent))
}

func TestErrors(t *testing.T) {
	_, err := tempdir.New(filepath.Join(t.TempDir(), "missing"), "x-")
	require.ErrorIs(t, err, os.ErrNotExist)
}

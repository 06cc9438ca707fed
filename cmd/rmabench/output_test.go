//go:build unix

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/internal/bench"
)

// An output file appears completely or not at all.
func TestOutIsAtomic(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "r.csv")
	out, errs := succeeds(t, fast("lat", "--sizes", "8,16", "--format", "csv", "--out", path, "--fabric", "shm")...)
	require.Empty(t, out)
	require.Regexp(t, `^1/2 .*: shm lat put 8\n2/2 .*: shm lat put 16\n$`, errs)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Len(t, strings.Split(strings.TrimSpace(string(b)), "\n"), 3)

	// A failed run leaves the old file unchanged and no temporary file.
	k, err := newSink(io.Discard, "csv", path)
	require.NoError(t, err)
	require.NoError(t, k.Write(bench.Result{}))
	k.discard()
	again, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, b, again)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, k.commit(), "after discard: nothing to do")
}

// The page does not take the place of the results.
func TestOutAndHTMLAreTwoFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	require.NoError(t, os.Symlink("file", link))
	both := func(html string) []string {
		return briefly("switch", "--fabric", "shm", "-n", "1", "--max", "64", "--rounds", "1", "--time", "1ms", "--out", file, "--html", html)
	}
	refused(t, "want two files", both(dir+"/./file")...)
	require.NoFileExists(t, file)
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	refused(t, "want two files", both(link)...)
	succeeds(t, both(file+".html")...)
}

// A pipe or device is written, and a link followed: a file does not take their place.
func TestOutReplacesFilesOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, file, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "file"), filepath.Join(dir, "link")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	got := make(chan []byte, 1)
	go func() {
		b, _ := os.ReadFile(pipe)
		got <- b
	}()
	require.NoError(t, writeFile(pipe, []byte("to the pipe")))
	require.Equal(t, "to the pipe", string(<-got))
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Symlink("file", link))
	require.NoError(t, writeFile(link, []byte("to the file")))
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "to the file", string(b))
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 3)
	require.Equal(t, []os.FileMode{0, os.ModeSymlink, os.ModeNamedPipe}, []os.FileMode{files[0].Type(), files[1].Type(), files[2].Type()})
}

//go:build linux

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/internal/tempdir"
)

// cache is the directory of built kernels. Entries are named by content and appear by rename,
// so an entry is complete or absent.
type cache struct{ dir string }

// openCache uses $RMA_SOFTROCE_CACHE, else rma-softroce in the user's cache directory, and
// removes the remains of killed commands.
func openCache() (*cache, error) {
	dir := os.Getenv("RMA_SOFTROCE_CACHE")
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("find cache directory: %w; set RMA_SOFTROCE_CACHE", err)
		}
		dir = filepath.Join(base, "rma-softroce")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	c := &cache{dir: dir}
	for _, d := range []string{dir, c.runs()} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("make cache directory: %w; set RMA_SOFTROCE_CACHE to a directory you can write", err)
		}
	}
	return c, nil
}

// runPrefix begins the names of directories in runs.
const runPrefix = "r"

func (c *cache) runs() string { return filepath.Join(c.dir, "run") }

// key names a cache entry: readable kind and version, then a hash of every input that
// determines its content.
func key(kind, version string, inputs ...string) string {
	h := sha256.New()
	for _, in := range append([]string{kind, version}, inputs...) {
		fmt.Fprintf(h, "%d:%s", len(in), in) // lengths keep ("ab","c") and ("a","bc") apart
	}
	clean := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune(".-_", r) {
			return r
		}
		return '_'
	}, version)
	return kind + "-" + clean + "-" + hex.EncodeToString(h.Sum(nil))[:12]
}

// get returns the directory of entry name, and builds it if it does not exist. build fills an
// empty directory; if it fails or the process dies, no entry appears. One process builds at a
// time; the others wait and find the entry.
func (c *cache) get(name string, build func(dir string) error) (string, error) {
	final := filepath.Join(c.dir, name)
	if isDir(final) {
		return final, nil
	}
	unlock, err := lockFile(filepath.Join(c.dir, "lock"), true, func() {
		say("another process is building a kernel; waiting for it")
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if isDir(final) {
		return final, nil
	}
	// the lock is held, so any half-built directory is a dead builder's
	if old, err := filepath.Glob(filepath.Join(c.dir, "building-*")); err == nil {
		for _, d := range old {
			os.RemoveAll(d)
		}
	}
	tmp, err := os.MkdirTemp(c.dir, "building-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}
	if err := build(tmp); err != nil {
		return "", err
	}
	if err := os.Rename(tmp, final); err != nil {
		return "", fmt.Errorf("publish cache entry: %w", err)
	}
	return final, nil
}

// newRun makes a directory for one run.
func (c *cache) newRun() (*tempdir.Dir, error) { return tempdir.New(c.runs(), runPrefix) }

// lockFile takes an exclusive lock on path. With wait it blocks, after calling waiting
// once; without, a held lock is an error.
func lockFile(path string, wait bool, waiting func()) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) && wait {
		if waiting != nil {
			waiting()
		}
		for {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

func isDir(p string) bool {
	st, err := os.Stat(p)
	return err == nil && st.IsDir()
}

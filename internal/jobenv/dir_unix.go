//go:build unix

package jobenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// ErrUnsafeDir says that other users can enter the directory for sockets.
var ErrUnsafeDir = errors.New("directory is accessible to other users")

// socketDir returns a directory that only this user may enter, the same for all of the
// user's processes on this host: "rma" in XDG_RUNTIME_DIR, else /tmp/rma-UID. It ignores
// TMPDIR, which may differ between ranks.
func socketDir(e env) (string, error) {
	if run := e("XDG_RUNTIME_DIR"); filepath.IsAbs(run) && ownDir(run) == nil {
		if dir, err := makeDir(filepath.Join(run, "rma")); err == nil {
			return dir, nil
		}
	}
	return makeDir(filepath.Join("/tmp", "rma-"+strconv.Itoa(os.Getuid())))
}

func makeDir(dir string) (string, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("jobenv: directory of the wire-up socket: %w", err)
	}
	return dir, ownDir(dir)
}

// ownDir checks that dir is a directory and not a link, belongs to this user, and is closed
// to others.
func ownDir(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("jobenv: directory of the wire-up socket: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(st.Uid) != os.Getuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("jobenv: %s: %w (mode %v)", dir, ErrUnsafeDir, info.Mode())
	}
	return nil
}

//go:build unix && !solaris && !aix

package tempdir

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// hold makes the lock file of a new directory and locks it. The error is os.ErrNotExist if
// a sweep has removed the directory before.
func hold(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX) // waits for a sweep, which removes the file
	}
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// take locks the lock file of a directory of this user that nobody uses; nil if there is
// none.
func take(path string) *os.File {
	dir, err := os.Lstat(filepath.Dir(path))
	if err != nil || !dir.IsDir() {
		return nil
	}
	if st, ok := dir.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Getuid() {
		return nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		_ = f.Close()
		return nil
	}
	return f
}

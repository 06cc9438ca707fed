// Package tempdir makes directories for the time of a process. What a process that was killed
// has left is removed by the next one.
package tempdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// lockName is the file in each directory on which the process that uses it holds a lock: the
// kernel releases it whichever way the process ends.
const lockName = "lock"

// Dir is a directory that only this user may enter.
type Dir struct {
	Path string
	lock *os.File // nil on systems without such locks
}

// New makes a directory in parent, the system's for temporary files if parent is "". Its
// name is prefix and a random number. First it calls Sweep.
func New(parent, prefix string) (*Dir, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	Sweep(parent, prefix)
	for {
		path, err := os.MkdirTemp(parent, prefix)
		if err != nil {
			return nil, err
		}
		lock, err := hold(filepath.Join(path, lockName))
		if errors.Is(err, os.ErrNotExist) {
			continue // swept between the lines above
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("temporary directory: %w", err), os.RemoveAll(path))
		}
		return &Dir{path, lock}, nil
	}
}

// Close removes the directory with all that is in it.
func (d *Dir) Close() error {
	err := os.RemoveAll(d.Path)
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
	}
	return err
}

// Sweep removes the directories in parent that New has made with prefix, in a process of
// this user that has ended without Close. Errors are not reported: somebody else may remove
// the same directory.
func Sweep(parent, prefix string) {
	found, _ := filepath.Glob(filepath.Join(parent, prefix+"*", lockName))
	for _, path := range found {
		if lock := take(path); lock != nil {
			_ = os.RemoveAll(filepath.Dir(path))
			_ = lock.Close()
		}
	}
}

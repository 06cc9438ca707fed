package shm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
)

// shortage makes an error that says that the system had no more of something wrap
// fabric.ErrResources, and says what to do.
func shortage(err error) error {
	if errors.Is(err, fabric.ErrResources) {
		return err
	}
	for _, e := range []error{unix.EMFILE, unix.ENFILE} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w: raise the limit of open files (ulimit -n): a region and a connection take one each", fabric.ErrResources, err)
		}
	}
	for _, e := range []error{unix.ENOMEM, unix.ENOBUFS, unix.ENOSPC} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", fabric.ErrResources, err)
		}
	}
	return err
}

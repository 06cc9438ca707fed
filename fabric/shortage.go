package fabric

import (
	"errors"
	"fmt"
	"syscall"
)

// Shortage has an error that says that this process or host has no more descriptors or
// memory wrap ErrResources, and say what to do. Other errors it returns as they are.
func Shortage(err error) error {
	if errors.Is(err, ErrResources) {
		return err
	}
	for _, e := range [...]syscall.Errno{syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w: raise the limit of open files (ulimit -n)", ErrResources, err)
		}
	}
	for _, e := range [...]syscall.Errno{syscall.ENOBUFS, syscall.ENOMEM, syscall.ENOSPC} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", ErrResources, err)
		}
	}
	return err
}

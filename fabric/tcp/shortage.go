package tcp

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/seed33544411/rma/fabric"
)

// shortage makes an error of this process or host having too few descriptors or too
// little memory a fabric.ErrResources, and leaves others alone.
func shortage(err error) error {
	for _, e := range [...]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", fabric.ErrResources, err)
		}
	}
	return err
}

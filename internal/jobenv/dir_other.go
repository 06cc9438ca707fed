//go:build !unix

package jobenv

import (
	"errors"
	"fmt"
)

// ErrUnsafeDir says that other users can enter the directory for sockets.
var ErrUnsafeDir = errors.New("directory is accessible to other users")

func socketDir(env) (string, error) {
	return "", fmt.Errorf("jobenv: sockets in a private directory: %w (set RMA_ROOT=host:port)", errors.ErrUnsupported)
}

//go:build !linux

package bench

import (
	"errors"
	"time"
)

// processTime is not supported here.
func processTime(int) (time.Duration, error) { return 0, errors.ErrUnsupported }

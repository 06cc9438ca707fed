//go:build !linux

package bench

import (
	"errors"
	"time"
)

// processTime is that of another process, which cannot be had here.
func processTime(int) (time.Duration, error) { return 0, errors.ErrUnsupported }

//go:build !linux

package bench

import (
	"errors"
	"time"
)

// ProcessTime is not supported here.
func ProcessTime(int) (time.Duration, error) { return 0, errors.ErrUnsupported }

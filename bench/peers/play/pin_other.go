//go:build !linux

package play

import (
	"errors"
	"fmt"
)

// pin returns an error: this system chooses the processors of a process.
func pin(cpu int) error { return fmt.Errorf("--cpu %d: %w", cpu, errors.ErrUnsupported) }

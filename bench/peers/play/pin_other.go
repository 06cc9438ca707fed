//go:build !linux

package play

import (
	"errors"
	"fmt"
)

// pin says that it cannot: which processor a process runs on is the system's
// business here.
func pin(cpu int) error { return fmt.Errorf("--cpu %d: %w", cpu, errors.ErrUnsupported) }

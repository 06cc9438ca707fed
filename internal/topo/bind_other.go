//go:build !linux

package topo

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/seed33544411/rma/internal/cpu"
)

// BindThread fails: this system binds no threads.
func BindThread(s cpu.Set) error {
	return fmt.Errorf("topo: bind to processors %v on %s: %w", s, runtime.GOOS, errors.ErrUnsupported)
}

//go:build !linux

package host

import (
	"errors"
	"fmt"
	"runtime"
)

var errHere = fmt.Errorf("on %s: %w", runtime.GOOS, errors.ErrUnsupported)

func memlockLimit() (uint64, error) { return 0, errHere }

func fileLimit() (uint64, error) { return 0, errHere }

func tryMemfd(int) error { return errHere }

func readProcess([]byte, int, uint64) error { return errHere }

//go:build !unix

package fabrictest

import (
	"errors"
	"time"
)

// readable fails: links have no descriptor on this platform and cannot be opened.
func readable(int, time.Duration) (bool, error) { return false, errors.ErrUnsupported }

//go:build !linux

package event

import (
	"errors"
	"sync/atomic"
	"time"
)

// Raw says whether WaitRaw works on this system.
const Raw = false

// WaitRaw fails.
func (s *Set) WaitRaw(time.Duration, *atomic.Uint32, uint32) (ready, interrupted bool, err error) {
	return false, false, errors.ErrUnsupported
}

type raw struct{}

//go:build !linux

package shm

import (
	"fmt"
	"runtime"

	"github.com/seed33544411/rma/fabric"
)

// Open returns an error that wraps fabric.ErrNotSupported: the link needs
// Linux (memfd seals, process_vm_readv, epoll).
func Open(Options) (fabric.Link, error) {
	return nil, fmt.Errorf("shm: %w on %s: use the tcp link", fabric.ErrNotSupported, runtime.GOOS)
}

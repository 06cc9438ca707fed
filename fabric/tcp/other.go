//go:build !(linux || darwin || freebsd)

package tcp

import (
	"fmt"
	"runtime"

	"github.com/seed33544411/rma/fabric"
)

// Open fails: the link needs epoll or kqueue.
func Open(*Config) (fabric.Link, error) {
	return nil, fmt.Errorf("tcp: open on %s: %w", runtime.GOOS, fabric.ErrNotSupported)
}

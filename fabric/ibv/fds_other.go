//go:build !linux

package ibv

import "github.com/seed33544411/rma/fabric"

// Open fails before any of these is called: this platform has no libibverbs.

func joinFDs(int, int) (int, error) { return -1, fabric.ErrNotSupported }

func addFD(int, int) error { return fabric.ErrNotSupported }

func readyFDs(int) (fds [1 + maxPorts]int, n int) { return }

func closeFD(int) error { return nil }

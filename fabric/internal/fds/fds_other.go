//go:build !linux

package fds

import "github.com/seed33544411/rma/fabric"

// Join fails: this platform has no epoll.
func Join(...int) (int, error) { return -1, fabric.ErrNotSupported }

// Add fails as well.
func Add(int, int) error { return fabric.ErrNotSupported }

// Close does nothing.
func Close(int) error { return nil }

//go:build !unix

package offheap

import "errors"

func mapPrivate(int) ([]byte, error) { return nil, errors.ErrUnsupported }

func mapShared(int, int, bool) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmap([]byte) error { return errors.ErrUnsupported }

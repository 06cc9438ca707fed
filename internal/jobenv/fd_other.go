//go:build !unix

package jobenv

import (
	"errors"
	"net"
)

func connOf(int) (net.Conn, error) { return nil, errors.ErrUnsupported }

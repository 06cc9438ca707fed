package tcp

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

const (
	keepIdleOption = unix.TCP_KEEPALIVE
	noSignal       = 0 // SO_NOSIGPIPE instead
)

// userTimeout bounds how long data may stay unacknowledged, in whole seconds.
func userTimeout(fd int, d time.Duration) error {
	return errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NOSIGPIPE, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_RXT_CONNDROPTIME, max(1, int((d+time.Second-1)/time.Second))),
	)
}

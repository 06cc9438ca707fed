package tcp

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	keepIdle = unix.TCP_KEEPIDLE
	noSignal = unix.MSG_NOSIGNAL
)

// userTimeout bounds how long data may stay unacknowledged.
func userTimeout(fd int, d time.Duration) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, max(1, int(d.Milliseconds())))
}

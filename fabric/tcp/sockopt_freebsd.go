package tcp

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

const (
	keepIdleOption = unix.TCP_KEEPIDLE
	noSignal       = unix.MSG_NOSIGNAL

	tcpMaxUnackTime = 0x44 // TCP_MAXUNACKTIME of netinet/tcp.h, since FreeBSD 14
)

// userTimeout bounds how long data may stay unacknowledged, in whole seconds. Systems
// without the option give up by themselves, after minutes.
func userTimeout(fd int, d time.Duration) error {
	err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, tcpMaxUnackTime, max(1, int((d+time.Second-1)/time.Second)))
	if errors.Is(err, unix.ENOPROTOOPT) {
		return nil
	}
	return err
}

package tcp

import "golang.org/x/sys/unix"

const (
	keepIdleOption = unix.TCP_KEEPIDLE
	noSignal       = unix.MSG_NOSIGNAL
)

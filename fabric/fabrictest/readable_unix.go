//go:build unix

package fabrictest

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// readable waits for fd with poll(2).
func readable(fd int, d time.Duration) (bool, error) {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(p, int(d/time.Millisecond))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && p[0].Revents&^unix.POLLIN != 0 {
			err = fmt.Errorf("descriptor %d: events %#x", fd, p[0].Revents)
		}
		return n > 0, err
	}
}

//go:build unix

package sampling

import "golang.org/x/sys/unix"

// nonblock keeps an open of a pipe from waiting for its writer.
const nonblock = unix.O_NONBLOCK

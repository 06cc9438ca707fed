//go:build unix

package sampling

import "golang.org/x/sys/unix"

// nonblock keeps the open of a pipe from waiting for a writer.
const nonblock = unix.O_NONBLOCK

//go:build darwin || freebsd

package wireup

import "golang.org/x/sys/unix"

// solLocal is the level of options of Unix sockets.
const solLocal = 0

// peerUser returns the user of the process at the other end.
func peerUser(fd int) (int, error) {
	cred, err := unix.GetsockoptXucred(fd, solLocal, unix.LOCAL_PEERCRED)
	if err != nil {
		return -1, err
	}
	return int(cred.Uid), nil
}

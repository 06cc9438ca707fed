//go:build linux || darwin || freebsd

package wireup

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// sameUser rejects a peer of another user; root is not restricted anyway.
func sameUser(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUser, err)
	}
	uid, uidErr := -1, error(nil)
	if err := raw.Control(func(fd uintptr) { uid, uidErr = peerUser(int(fd)) }); err != nil {
		return fmt.Errorf("%w: %w", ErrUser, err)
	}
	if uidErr != nil {
		return fmt.Errorf("%w: %w", ErrUser, uidErr)
	}
	if uid != os.Getuid() && uid != 0 {
		return fmt.Errorf("%w: user %d, this one is of user %d", ErrUser, uid, os.Getuid())
	}
	return nil
}

// openToOthers reports whether others may read or write a file of this user. A file of
// another user may be open to anybody.
func openToOthers(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid() && info.Mode().Perm()&0o077 != 0
}

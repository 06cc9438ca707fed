package wireup

import (
	"net"

	"golang.org/x/sys/unix"
)

// maxUnanswered is the number of unanswered retransmissions or window probes after which a
// host counts as lost: they take seconds.
const maxUnanswered = 5

// acknowledges reports whether the other end of conn still acknowledges data. Within a host
// the kernel reports when it does not.
func acknowledges(conn net.Conn) bool {
	tc, ok := conn.(*net.TCPConn)
	if !ok {
		return true
	}
	c, err := tc.SyscallConn()
	if err != nil {
		return false
	}
	alive := false
	err = c.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		alive = err == nil && info.Retransmits < maxUnanswered && info.Probes < maxUnanswered
	})
	return alive && err == nil
}
